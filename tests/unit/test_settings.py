"""Settings: names of the environment, the units of the policy, and errors that say what to do."""

import os
from pathlib import Path

import pytest

from events.types.policy import Policy
from hypercluster.domain.identity import ss58
from hypercluster.runtime import settings
from hypercluster.runtime.settings import Settings, SettingsError, load, policy_overrides

OPERATOR = ss58.encode(bytes(range(32)))


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("CHALLENGE_", "HYPER_", "BASE_")):
            monkeypatch.delenv(name)


def production(monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
    """The least that production needs, and more."""
    for name, value in {"HYPER_OPERATORS": OPERATOR, "CHALLENGE_SHARED_TOKEN": "secret", **more}.items():
        monkeypatch.setenv(name, value)


def error_of(profile: str | None = None, **overrides: object) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        load(profile, overrides)
    return caught.value


def test_defaults_of_production(monkeypatch: pytest.MonkeyPatch) -> None:
    production(monkeypatch)
    found = load()
    assert (found.profile, found.slug, found.version, found.audience) == (
        "production",
        "hypercluster",
        "0.1.0",
        "hypercluster",
    )
    assert (found.host, found.port, found.combined_worker) == ("0.0.0.0", 8000, True)
    assert found.ledger_path == Path("/data/challenge.sqlite3")
    assert found.operators == (OPERATOR,)
    assert found.policy_overrides == {} and found.warnings == ()


def test_production_needs_operators_and_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    assert error_of().name == "HYPER_OPERATORS"
    monkeypatch.setenv("HYPER_OPERATORS", OPERATOR)
    assert error_of().name == "CHALLENGE_SHARED_TOKEN"


@pytest.mark.parametrize("prefix", ["sqlite:///", "sqlite+aiosqlite:///"])
def test_database_url_is_an_absolute_path(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    monkeypatch.setenv("CHALLENGE_DATABASE_URL", f"{prefix}/var/lib/x.sqlite3")
    assert load("sim").ledger_path == Path("/var/lib/x.sqlite3")
    for wrong in ("relative.sqlite3", "", "/", "/x?mode=ro", "/a%20b"):
        monkeypatch.setenv("CHALLENGE_DATABASE_URL", prefix + wrong)
        assert error_of("sim").name == "CHALLENGE_DATABASE_URL", wrong


def test_other_databases_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHALLENGE_DATABASE_URL", "postgresql://host/db")
    assert error_of("sim").name == "CHALLENGE_DATABASE_URL"


def test_base_database_url_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASE_DATABASE_URL", "sqlite:////wrong/place")
    assert load("sim").ledger_path == Path("/data/challenge.sqlite3")


def test_token_wins_over_its_file_and_the_file_is_stripped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("  from-file\n")
    monkeypatch.setenv("CHALLENGE_TOKEN_FILE", str(file))
    assert load("sim").shared_token == "from-file"
    monkeypatch.setenv("CHALLENGE_SHARED_TOKEN", "direct")
    assert load("sim").shared_token == "direct"


def test_a_named_token_file_must_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CHALLENGE_SHARED_TOKEN_FILE", str(tmp_path / "missing"))
    error = error_of("sim")
    assert error.name == "CHALLENGE_SHARED_TOKEN_FILE" and "missing" in str(error)
    monkeypatch.setenv("CHALLENGE_SHARED_TOKEN_FILE", "")
    assert load("sim").shared_token is None


def test_the_token_does_not_show_in_the_settings_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHALLENGE_SHARED_TOKEN", "very-secret")
    assert "very-secret" not in repr(load("sim"))


def test_sim_binds_to_loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load("sim").host == "127.0.0.1"
    for host in ("127.0.0.9", "localhost", "::1"):
        monkeypatch.setenv("CHALLENGE_HOST", host)
        assert load("sim").host == host
    for host in ("0.0.0.0", "10.0.0.1", "example.org", "::"):
        monkeypatch.setenv("CHALLENGE_HOST", host)
        assert error_of("sim").name == "CHALLENGE_HOST"


def test_the_command_line_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPER_PROFILE", "production")
    monkeypatch.setenv("CHALLENGE_PORT", "1")
    assert load("sim", {"port": 2, "host": None}).port == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CHALLENGE_PORT", "99999"),
        ("CHALLENGE_PORT", "http"),
        ("CHALLENGE_SLUG", "Bad"),
        ("CHALLENGE_SLUG", "x"),
        ("CHALLENGE_VERSION", "v1"),
        ("HYPER_PROFILE", "test"),
        ("HYPER_AUDIENCE", "a b"),
        ("HYPER_COMBINED_WORKER", "maybe"),
        ("HYPER_SSH_ALLOW_NETWORKS", "10.0.0.0/33"),
        ("CHALLENGE_ROLE", "master"),
        ("CHALLENGE_API_VERSION", "2.0"),
    ],
)
def test_a_wrong_value_names_the_variable_and_a_fix(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    error = error_of(None if name == "HYPER_PROFILE" else "sim")
    assert error.name == name
    assert name in error.fix


def test_unknown_base_names_warn_and_known_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHALLENGE_TYPO", "CHALLENGE_DOCKER_NETWORK", "CHALLENGE_ENV_FILE", "CHALLENGE_NAME"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("CHALLENGE_TEE_VERIFICATION_ENABLED", "true")
    warnings = load("sim").warnings
    assert [warning.split()[0] for warning in warnings] == ["CHALLENGE_TEE_VERIFICATION_ENABLED", "CHALLENGE_TYPO"]


def test_policy_names_are_read_in_the_policys_units() -> None:
    found = policy_overrides(
        {
            "HYPER_EPOCH_SECONDS": "360",
            "HYPER_TEE_BONUS_TDX": "1.08",
            "HYPER_WEIGHT_MAX_FRACTION": "0.25",
            "HYPER_MAX_OFFER_PRICE_PER_HOUR": "1000.5",
            "HYPER_JOB_IMAGE_ALLOWLIST": "a@sha256:1, b@sha256:2",
            "HYPER_SCORE_WINDOW_ATTEMPTS": "",
        }
    )
    assert found == {
        "epoch_s": 360,
        "tee_bonus_tdx_ppm": 1_080_000,
        "weight_cap_ppm": 250_000,
        "price_cap_micro_usd_h": 1_000_500_000,
        "image_allowlist": ("a@sha256:1", "b@sha256:2"),
    }


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "1e40", "0.0000001", "many", "1_0.5"])
def test_what_cannot_stand_in_the_policy_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="HYPER_TEE_BONUS_TDX"):
        policy_overrides({"HYPER_TEE_BONUS_TDX": value})


def test_every_override_is_a_field_of_the_policy() -> None:
    fields = {field for field, _ in settings._POLICY_NUMBERS.values()}
    assert fields <= set(Policy.__struct_fields__)


def test_settings_cannot_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Settings = load("sim")
    with pytest.raises(ValueError, match="frozen"):
        found.port = 1  # type: ignore[misc]
