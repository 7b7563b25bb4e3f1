"""What may be asked about jobs: bodies and routes."""

from typing import Annotated

from pydantic import Field, field_validator

from hypercluster.domain.jobs import codes as _codes  # noqa: F401 (its import registers them)
from hypercluster.domain.kernel import Body, Refused
from hypercluster.domain.route import Route

ENV_VALUE_CHARS_MAX = 16 * 1024

type Positive = Annotated[int, Field(ge=1)]


class SubmitJob(Body):
    """A multi-node run. `env` holds commitments once the body is sealed; `resource` is an object of bounds."""

    image_digest: str = Field(min_length=1, max_length=256)
    entrypoint: list[str] = Field(min_length=1)
    world_size: Positive
    nnodes: Positive
    nproc_per_node: Positive
    resource: dict[str, object]
    timeout_s: Positive
    client_request_id: str | None = Field(default=None, max_length=128)
    backend: str = Field(default="nccl", max_length=32)
    fabric: str = Field(default="auto", max_length=32)
    tee: str = Field(default="none", max_length=32)
    env: dict[str, str] | None = None
    placement_policy: str = Field(default="pack", max_length=16)
    teardown: str = Field(default="keep", max_length=16)
    lease_id: str | None = Field(default=None, max_length=36)
    pod_id: str | None = Field(default=None, max_length=36)

    @field_validator("client_request_id", "lease_id", "pod_id")
    @classmethod
    def _blank_is_none(cls, value: str | None) -> str | None:
        return value if value is not None and value.strip() else None


class CancelJob(Body):
    """Stop a job. `reason` is private: free text may name persons."""

    reason: str | None = Field(default=None, max_length=256)


class PostResult(Body):
    """A result as somebody concerned saw it: a claim."""

    attempt_no: Positive = 1
    status: str = Field(default="succeeded", max_length=32)
    metrics: dict[str, object] | None = None
    fabric_report_digest: str | None = Field(default=None, max_length=128)
    output_digest: str | None = Field(default=None, max_length=128)
    proof_tier: str = Field(default="sim", max_length=32)
    verified: bool = True
    verify_mode: str = Field(default="sim", max_length=32)
    failure_code: str | None = Field(default=None, max_length=64)
    integrity_codes: list[str] | None = None
    quote_b64: str | None = None
    gpu_evidence: dict[str, object] | None = None
    report_data_hex: str | None = None
    tee_nonce: str | None = None


ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/jobs", "job.submit", SubmitJob, private=("env",)),
    Route("POST", "/v1/jobs/{job_id}/cancel", "job.cancel", CancelJob, private=("reason",), body_required=False),
    Route("POST", "/v1/jobs/{job_id}/results", "result.post", PostResult, body_max_bytes=1024 * 1024),
)


def check_private(kind: str, body: dict[str, object]) -> Refused | None:
    """Check private values, which no decider sees, before they are sealed: env values that a process can be given."""
    env = body.get("env")
    if kind != "job.submit" or not isinstance(env, dict):
        return None
    for key, value in env.items():
        if not isinstance(value, str):
            return Refused("invalid_env", "env values are text", field=f"env.{key}")
        if len(value) > ENV_VALUE_CHARS_MAX or "\0" in value:
            message = f"an env value has at most {ENV_VALUE_CHARS_MAX} characters and no NUL"
            return Refused("invalid_env", message, field=f"env.{key}")
    return None
