"""Static gates of a job: from what was asked to a spec, or the first rule that it breaks. They look at no lease."""

import re

from events.types.jobs import JobSpec
from events.types.policy import Policy
from hypercluster.domain.jobs.commands import SubmitJob
from hypercluster.domain.jobs.resource import Resource, read_resource
from hypercluster.domain.kernel import Refused

ENTRYPOINT_TOKENS_MAX = 64
ENTRYPOINT_BYTES_MAX = 8192
ENV_KEYS_MAX = 64
ENV_KEY_CHARS_MAX = 64

BACKENDS = ("nccl", "gloo")
FABRICS = ("auto", "ib", "eth", "nvlink_only")
TEES = ("none", "tdx", "tdx+gpu_cc")
POLICIES = ("pack", "spread")
TEARDOWNS = ("keep", "terminate")

_PINNED = re.compile(
    r"(?:[a-z0-9]+(?:[.-][a-z0-9]+)*(?::[0-9]{1,5})?/)?"
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"@sha256:[0-9a-f]{64}"
)
_SIM_DIGEST = re.compile(r"sha256:[0-9a-z]{8,64}")

_SHELL = frozenset(";&|`$<>\\\r\n\0")
_SYSTEM_START = re.compile(r"/(?:etc|proc|sys|root|bin|sbin|usr|var|home|tmp)/", re.IGNORECASE)
_SYSTEM_INSIDE = re.compile(r"[\s=]/(?:etc|bin|usr|sbin|proc|sys)/", re.IGNORECASE)

_ENV_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENV_RESERVED = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "ROLE_NAME",
        "NODE_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "PATH",
    }
)
_ENV_RESERVED_STARTS = ("NCCL_", "GLOO_", "TP_", "LD_", "PYTHON", "HYPER_", "TORCHELASTIC_", "TORCH_NCCL_")


def build_spec(body: SubmitJob, policy: Policy, *, sim: bool, lease_id: str | None) -> JobSpec | Refused:
    """The spec of the job, or the first broken rule: image, entrypoint, dimensions, resource, budget, words, env."""
    refused = _image(body.image_digest.strip(), policy, sim) or _entrypoint(body.entrypoint) or _dimensions(body)
    if refused is not None:
        return refused
    resource = read_resource(body.resource)
    if isinstance(resource, Refused):
        return resource
    refused = _budget(body, resource, policy)
    if refused is not None:
        return refused
    words = _words(body)
    if isinstance(words, Refused):
        return words
    refused = _env(body.env or {})
    if refused is not None:
        return refused
    return JobSpec(
        image_digest=body.image_digest.strip(),
        entrypoint=tuple(body.entrypoint),
        world_size=body.world_size,
        nnodes=body.nnodes,
        nproc_per_node=body.nproc_per_node,
        timeout_s=body.timeout_s,
        backend=words["backend"],
        fabric=words["fabric"],
        tee=words["tee"],
        placement_policy=words["placement_policy"],
        teardown=words["teardown"],
        lease_id=lease_id,
        resource=resource.text,
        max_price_micro_usd_h=resource.max_price_micro_usd_h,
        max_lifetime_us=resource.max_lifetime_us,
        env=dict(body.env or {}),
    )


def _image(image: str, policy: Policy, sim: bool) -> Refused | None:
    if not (_PINNED.fullmatch(image) or (sim and _SIM_DIGEST.fullmatch(image))):
        return Refused("image_not_allowed", "name the image as name@sha256:<64 hex>, without a tag", "image_digest")
    if policy.image_allowlist and image not in policy.image_allowlist:
        return Refused("image_not_allowed", "the image is not in the policy's allowlist", "image_digest")
    return None


def _entrypoint(tokens: list[str]) -> Refused | None:
    if len(tokens) > ENTRYPOINT_TOKENS_MAX or sum(len(token.encode()) for token in tokens) > ENTRYPOINT_BYTES_MAX:
        message = f"at most {ENTRYPOINT_TOKENS_MAX} tokens and {ENTRYPOINT_BYTES_MAX} bytes in all"
        return Refused("invalid_entrypoint", message, "entrypoint")
    for index, token in enumerate(tokens):
        why = _unsafe(token)
        if why is not None:
            return Refused("path_unsafe", f"an entrypoint token {why}", f"entrypoint.{index}")
    return None


def _unsafe(token: str) -> str | None:
    if not token.strip():
        return "is empty"
    if not _SHELL.isdisjoint(token):
        return "holds a shell character"
    if ".." in token:
        return "leaves its directory"
    if _SYSTEM_START.match(token) or _SYSTEM_INSIDE.search(token):
        return "names a system path"
    return None


def _dimensions(body: SubmitJob) -> Refused | None:
    if body.world_size == body.nnodes * body.nproc_per_node:
        return None
    message = f"world_size {body.world_size} is not nnodes {body.nnodes} x nproc_per_node {body.nproc_per_node}"
    return Refused("world_size_mismatch", message[:256], "world_size")


def _budget(body: SubmitJob, resource: Resource, policy: Policy) -> Refused | None:
    # A job above the shared budget could never start, so that it is refused here and does not wait.
    world_max = min(policy.job_world_size_max, policy.job_gpus_max, policy.concurrent_world_size_max)
    limits = (
        ("world_size", body.world_size, world_max),
        ("nnodes", body.nnodes, policy.job_nnodes_max),
        ("nproc_per_node", body.nproc_per_node, policy.job_nproc_max),
        ("timeout_s", body.timeout_s, policy.job_timeout_s_max),
        ("resource.gpus", resource.gpus or 0, policy.job_gpus_max),
    )
    for field, value, limit in limits:
        if value > limit:
            return Refused("budget_exceeded", f"{field} is at most {limit}", field)
    return None


def _words(body: SubmitJob) -> dict[str, str] | Refused:
    """The fields that take one word of a list: trimmed, case-free, blank for the default (the list's first)."""
    found: dict[str, str] = {}
    for field, given, known in (
        ("backend", body.backend, BACKENDS),
        ("fabric", body.fabric, FABRICS),
        ("tee", body.tee, TEES),
        ("placement_policy", body.placement_policy, POLICIES),
        ("teardown", body.teardown, TEARDOWNS),
    ):
        word = given.strip().lower() or known[0]
        if word not in known:
            return Refused(f"invalid_{field}", f"{field} is one of {', '.join(known)}", field)
        found[field] = word
    return found


def _env(env: dict[str, str]) -> Refused | None:
    if len(env) > ENV_KEYS_MAX:
        return Refused("invalid_env", f"at most {ENV_KEYS_MAX} env entries", "env")
    for key in env:
        if len(key) > ENV_KEY_CHARS_MAX or not _ENV_KEY.fullmatch(key):
            message = f"an env key is a letter or _, then letters, digits or _, at most {ENV_KEY_CHARS_MAX} in all"
            return Refused("invalid_env", message, "env")
        if key in _ENV_RESERVED or key.startswith(_ENV_RESERVED_STARTS):
            return Refused("env_key_reserved", f"the launcher sets {key} itself", f"env.{key}")
    return None
