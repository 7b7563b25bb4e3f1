"""What the operator sets by environment: names of Base (`CHALLENGE_*`) and our own (`HYPER_*`).

A wrong value stops the start and names the variable and the fix. Numbers that decide stand in the ledger's policy;
where a variable says the same as the policy it is only collected here, so that the start can compare the two.
`BASE_DATABASE_URL` is never read.
"""

import ipaddress
import os
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

PRODUCTION = "production"
SIM = "sim"

_SLUG = re.compile(r"[a-z0-9][a-z0-9-]*[a-z0-9]")
_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_NUMBER = re.compile(r"\d{1,16}(\.\d{1,12})?")
_AUDIENCE = re.compile(r"[a-z0-9][a-z0-9._@-]{0,127}")
_URL_SCHEMES = ("sqlite+aiosqlite:///", "sqlite:///")

type PolicyValue = int | tuple[str, ...]
type Names = Annotated[tuple[str, ...], NoDecode]


class SettingsError(Exception):
    """A variable has a value that cannot be used. `name` is the variable, `fix` what to set instead."""

    def __init__(self, name: str, problem: str, fix: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name, self.problem, self.fix = name, problem, fix


class Settings(BaseSettings):
    """Checked settings of one server. Made by `load`; fields may also be given by name."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", populate_by_name=True, case_sensitive=True)

    profile: str = Field(
        PRODUCTION,
        validation_alias="HYPER_PROFILE",
        description="`production` or `sim`; sim stays on one machine and listens on loopback",
    )
    slug: str = Field("hypercluster", validation_alias="CHALLENGE_SLUG", description="name of the challenge at Base")
    version: str = Field("0.1.0", validation_alias="CHALLENGE_VERSION", description="release that is told to Base")
    audience: str = Field(
        "",
        validation_alias="HYPER_AUDIENCE",
        description="what signed requests are made for, as `hypercluster@mainnet`; default: the slug",
    )
    database_url: str = Field(
        "sqlite:////data/challenge.sqlite3",
        validation_alias="CHALLENGE_DATABASE_URL",
        description="the ledger: `sqlite:///` and an absolute path; all other files stand beside it",
    )
    shared_token: str | None = Field(
        None,
        validation_alias="CHALLENGE_SHARED_TOKEN",
        description="the token that Base also holds; required in production",
        repr=False,
    )
    host: str = Field(
        "0.0.0.0",  # noqa: S104 - a container's port
        validation_alias="CHALLENGE_HOST",
        description="address to listen on; sim: 127.0.0.1",
    )
    port: int = Field(
        8000, validation_alias="CHALLENGE_PORT", description="port to listen on; 0 takes a free one", ge=0, le=65535
    )
    operators: Names = Field(
        (),
        validation_alias="HYPER_OPERATORS",
        description="hotkeys of operators, comma-separated; required in production, written into event 1",
    )
    combined_worker: bool = Field(
        True,
        validation_alias="HYPER_COMBINED_WORKER",
        description="run the workers in the server; `false` is the API alone, which runs no jobs and ends no leases",
    )
    ssh_allow_networks: Names = Field(
        (),
        validation_alias="HYPER_SSH_ALLOW_NETWORKS",
        description="private ranges that may be connected to, comma-separated CIDR; loopback never in production",
    )
    ssh_key_path: Path | None = Field(
        None,
        validation_alias="HYPER_SSH_KEY_PATH",
        description="private SSH key of the challenge; default: `keys/ssh_client`, made at the first start",
    )
    ssh_connect_timeout_s: int = Field(
        15,
        validation_alias="HYPER_SSH_CONNECT_TIMEOUT_S",
        description="seconds until a node counts as unreachable",
        ge=1,
        le=120,
    )
    output_cap_bytes: int = Field(
        16 * 1024 * 1024,
        validation_alias="HYPER_OUTPUT_CAP_BYTES",
        description="output kept of each rank and stream, bytes",
        ge=1024,
        le=2**30,
    )
    policy_overrides: dict[str, PolicyValue] = Field(default_factory=dict, validation_alias="policy_overrides")
    warnings: tuple[str, ...] = Field((), validation_alias="warnings")

    @property
    def ledger_path(self) -> Path:
        """The ledger's file; everything else of the deployment stands beside it."""
        scheme = next(scheme for scheme in _URL_SCHEMES if self.database_url.startswith(scheme))
        return Path(self.database_url.removeprefix(scheme))

    @field_validator("operators", "ssh_allow_networks", mode="before")
    @classmethod
    def _comma_list(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("profile")
    @classmethod
    def _known_profile(cls, value: str) -> str:
        return _require(value, value in (PRODUCTION, SIM), "must be production or sim")

    @field_validator("slug")
    @classmethod
    def _slug_grammar(cls, value: str) -> str:
        return _require(value, bool(_SLUG.fullmatch(value)), "must be two or more of a-z 0-9 -, no dash at either end")

    @field_validator("version")
    @classmethod
    def _version_grammar(cls, value: str) -> str:
        return _require(value, bool(_VERSION.fullmatch(value)), "must be a version such as 0.1.0")

    @field_validator("database_url")
    @classmethod
    def _absolute_sqlite(cls, value: str) -> str:
        scheme = next((scheme for scheme in _URL_SCHEMES if value.startswith(scheme)), None)
        path = value.removeprefix(scheme) if scheme else ""
        sound = path.startswith("/") and not path.endswith("/") and not set(path) & set("?#%\0")
        return _require(value, sound, "must be sqlite:/// or sqlite+aiosqlite:/// and an absolute path")

    @field_validator("ssh_allow_networks")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            ipaddress.ip_network(text)
        return value

    @model_validator(mode="after")
    def _audience_default(self) -> Self:
        if self.audience:
            _require(self.audience, bool(_AUDIENCE.fullmatch(self.audience)), "must be as slug@network")
        else:
            object.__setattr__(self, "audience", self.slug)
        return self


def load(profile: str | None = None, overrides: Mapping[str, object] | None = None) -> Settings:
    """Settings from the environment; `overrides` (field name -> value, as a command line gives them) win.

    Raises: SettingsError
    """
    environment = os.environ
    given: dict[str, Any] = {name: value for name, value in (overrides or {}).items() if value is not None}
    if profile is not None:
        given["profile"] = profile
    if given.get("profile", environment.get("HYPER_PROFILE")) == SIM and "CHALLENGE_HOST" not in environment:
        given.setdefault("host", "127.0.0.1")
    given.setdefault("shared_token", _shared_token(environment))
    given["policy_overrides"] = policy_overrides(environment)
    given["warnings"] = tuple(_warnings(environment))
    try:
        found = Settings(**given)
    except ValidationError as error:
        raise _as_settings_error(error) from error
    _check_profile(found)
    return found


def policy_overrides(environment: Mapping[str, str]) -> dict[str, PolicyValue]:
    """Policy fields that the environment names, in the policy's own units.

    Raises: SettingsError
    """
    found: dict[str, PolicyValue] = {}
    for name, (field, scale) in _POLICY_NUMBERS.items():
        if environment.get(name, "").strip():
            found[field] = _scaled(name, environment[name], scale)
    allowlist = environment.get(_ALLOWLIST)
    if allowlist is not None:
        found["image_allowlist"] = tuple(part.strip() for part in allowlist.split(",") if part.strip())
    return found


def variable_of(field: str) -> str:
    """The variable that says the same as this field of the policy."""
    return next((name for name, (named, _) in _POLICY_NUMBERS.items() if named == field), _ALLOWLIST)


_ALLOWLIST = "HYPER_JOB_IMAGE_ALLOWLIST"
_PPM = 1_000_000

# variable -> policy field, and what one unit of the variable is in the field's unit
_POLICY_NUMBERS: dict[str, tuple[str, int]] = {
    "HYPER_EPOCH_SECONDS": ("epoch_s", 1),
    "HYPER_SIGNATURE_TTL_SECONDS": ("signature_window_s", 1),
    "HYPER_NODE_LIVENESS_SECONDS": ("liveness_window_s", 1),
    "HYPER_MAX_OFFER_PRICE_PER_HOUR": ("price_cap_micro_usd_h", 1_000_000),
    "HYPER_MAX_OFFER_LIFETIME_HOURS": ("lifetime_cap_h", 1),
    "HYPER_MAX_JOB_WORLD_SIZE": ("job_world_size_max", 1),
    "HYPER_MAX_JOB_NNODES": ("job_nnodes_max", 1),
    "HYPER_MAX_JOB_NPROC_PER_NODE": ("job_nproc_max", 1),
    "HYPER_MAX_JOB_TIMEOUT_S": ("job_timeout_s_max", 1),
    "HYPER_MAX_JOB_GPU_BUDGET": ("job_gpus_max", 1),
    "HYPER_MAX_CONCURRENT_WORLD_SIZE_BUDGET": ("concurrent_world_size_max", 1),
    "HYPER_LARGE_JOB_WORLD_SIZE_THRESHOLD": ("large_job_world_size", 1),
    "HYPER_MAX_CONCURRENT_LARGE_JOBS": ("concurrent_large_jobs_max", 1),
    "HYPER_CAPACITY_WAIT_TIMEOUT_S": ("capacity_wait_s", 1),
    "HYPER_SCORE_WINDOW_ATTEMPTS": ("window_attempts", 1),
    "HYPER_EFFICIENCY_FLOOR": ("efficiency_floor_ppm", _PPM),
    "HYPER_SELF_DEAL_DAMPING": ("self_deal_damping_ppm", _PPM),
    "HYPER_TEE_BONUS_TDX": ("tee_bonus_tdx_ppm", _PPM),
    "HYPER_TEE_BONUS_TDX_GPU": ("tee_bonus_tdx_gpu_ppm", _PPM),
    "HYPER_WEIGHT_TOP_K": ("weight_top_k", 1),
    "HYPER_WEIGHT_MAX_FRACTION": ("weight_cap_ppm", _PPM),
    "HYPER_WEIGHT_DUST": ("weight_dust_ppm", _PPM),
}

_TOKEN_FILES = ("CHALLENGE_SHARED_TOKEN_FILE", "CHALLENGE_TOKEN_FILE")
_TOKEN_FILE_DEFAULT = "/run/secrets/base/challenge_token"  # noqa: S105 - a path

# Base's own names that a deployment may set and that change nothing here
_TOLERATED = re.compile(
    r"CHALLENGE_(ENV_FILE|NAME|SHARED_TOKEN_FILE|TOKEN_FILE|API_VERSION|SDK_VERSION|ROLE|CAPABILITIES"
    r"|CAPABILITY_REGISTRY_VERSION|SDK_COMPATIBILITY_RANGE|API_COMPATIBILITY_RANGE|TEE_VERIFICATION_ENABLED"
    r"|RAW_WEIGHT_PUSH_ENABLED|DOCKER_[A-Z_]+|HOTKEY)"
)
_FIXED = {
    "CHALLENGE_ROLE": "challenge",
    "CHALLENGE_API_VERSION": "1.0",
    "CHALLENGE_SDK_VERSION": "1.0.0",
    "CHALLENGE_CAPABILITY_REGISTRY_VERSION": "1",
}
_SWITCHES_WITHOUT_EFFECT = ("CHALLENGE_TEE_VERIFICATION_ENABLED", "CHALLENGE_RAW_WEIGHT_PUSH_ENABLED")


def _require(value: str, sound: bool, message: str) -> str:
    if not sound:
        raise ValueError(message)
    return value


def _scaled(name: str, text: str, scale: int) -> int:
    fix = f"set {name} to a plain number of at least 0" + (" with at most six decimals" if scale > 1 else "")
    if not _NUMBER.fullmatch(text.strip()):
        raise SettingsError(name, f"{text!r} is not a plain number", fix)
    number = Decimal(text.strip()) * scale
    if number >= 2**53 or number != int(number):
        raise SettingsError(name, f"{text!r} cannot stand in the policy", fix)
    return int(number)


def _shared_token(environment: Mapping[str, str]) -> str | None:
    """The token itself, else the content of its file; a file that the operator did not name may be missing."""
    token = environment.get("CHALLENGE_SHARED_TOKEN", "").strip()
    if token:
        return token
    named = next((name for name in _TOKEN_FILES if name in environment), None)
    path = environment[named].strip() if named else _TOKEN_FILE_DEFAULT
    if not path:
        return None
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except FileNotFoundError as error:
        if named is None:
            return None
        raise SettingsError(named, f"no file at {path}", f"create the file, or set {named}= for no token") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(named or _TOKEN_FILES[0], f"cannot read {path}: {error}", "make it readable") from error
    return text or None


def _warnings(environment: Mapping[str, str]) -> list[str]:
    known = {field.validation_alias for field in Settings.model_fields.values()}
    found: list[str] = []
    for name in sorted(environment):
        if not name.startswith("CHALLENGE_") or name in known:
            continue
        expected = _FIXED.get(name)
        if expected is not None and environment[name] != expected:
            raise SettingsError(name, f"is {environment[name]!r}", f"unset {name} or set it to {expected}")
        if not _TOLERATED.fullmatch(name):
            found.append(f"{name} is unknown and ignored")
        elif name in _SWITCHES_WITHOUT_EFFECT and environment[name].strip().lower() in ("1", "true", "yes", "on"):
            found.append(f"{name} has no effect in this release")
    return found


def _as_settings_error(error: ValidationError) -> SettingsError:
    first = error.errors(include_url=False, include_input=False)[0]
    if not first["loc"]:
        name = "HYPER_AUDIENCE"
    else:
        field = Settings.model_fields.get(str(first["loc"][0]))
        name = str(field.validation_alias) if field else str(first["loc"][0])
    problem = first["msg"].removeprefix("Value error, ")
    return SettingsError(name, problem, f"correct {name}, or unset it to use the default")


def _check_profile(settings: Settings) -> None:
    """What only one profile asks for: sim never leaves the machine, production names its operators and its token."""
    if settings.profile == SIM:
        if not _is_loopback(settings.host):
            raise SettingsError("CHALLENGE_HOST", "the sim profile binds to loopback only", "set it to 127.0.0.1")
        return
    if not settings.operators:
        raise SettingsError("HYPER_OPERATORS", "production needs operators", "name their hotkeys, comma-separated")
    if not settings.shared_token:
        fix = "set CHALLENGE_SHARED_TOKEN, or CHALLENGE_SHARED_TOKEN_FILE to a file that holds it"
        raise SettingsError("CHALLENGE_SHARED_TOKEN", "production needs the token that Base also holds", fix)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
