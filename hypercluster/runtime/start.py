"""From settings to a running service: open or begin the ledger, check it against the settings, start the workers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from hypercluster.domain import router
from hypercluster.domain.kernel import RULES, Accepted
from hypercluster.domain.policy.internal import BeginPolicy, OpenLedger
from hypercluster.domain.policy.release import policy_of
from hypercluster.effects.networks import Allowed
from hypercluster.effects.ssh import Ssh, generate_client_key
from hypercluster.release import VERSION
from hypercluster.runtime.clock import Clock, ClockGuard
from hypercluster.runtime.service import Service
from hypercluster.runtime.settings import SIM, Settings, SettingsError, variable_of
from hypercluster.runtime.store import Store, ledger_key, open_store
from hypercluster.runtime.workers.attempts import Attempts
from hypercluster.runtime.workers.base import Supervisor
from hypercluster.runtime.workers.expiry import expire_leases, reclaim_nodes
from hypercluster.runtime.workers.placement import place_jobs
from hypercluster.runtime.workers.retention import Retention
from hypercluster.runtime.workers.snapshots import take_snapshots
from hypercluster.runtime.writer import Commit, Submission, Writer

log = structlog.get_logger()


@asynccontextmanager
async def running(settings: Settings, clock: Clock | None = None) -> AsyncIterator[Service]:
    """A service with its workers, for as long as the context lasts.

    Raises: events.errors.LedgerError, SettingsError
    """
    clock = clock or Clock()
    store = open_store(settings.ledger_path, settings.slug)
    service = None
    try:
        if not store.state.policy.policies:
            begin_ledger(store, settings, clock)
        check_against_ledger(store, settings)
        service = Service(settings, store, ssh_client(settings, store.directory), clock)
        await service.start()
        async with workers(service):
            yield service
    finally:
        if service is not None:
            await service.stop()
        else:
            store.close()


def begin_ledger(store: Store, settings: Settings, clock: Clock) -> None:
    """Write the first events of a new ledger: who opened it, and the policy and rules that it begins with."""
    if settings.profile != SIM and not settings.operators:
        raise SettingsError(
            "HYPER_OPERATORS", "a new ledger needs operators", "set it to their hotkeys, comma-separated"
        )
    opened = OpenLedger(
        origin=store.ledger.origin,
        profile=settings.profile,
        public_key=bytes(ledger_key(store.directory).verify_key).hex(),
        slug=settings.slug,
        audience=settings.audience,
        operators=settings.operators,
        release=VERSION,
    )
    info = store.state.ledger.info.get("ledger")  # there already where the first start was cut off in between
    profile = settings.profile if info is None else info.profile
    begun = BeginPolicy(policy=policy_of(profile), rules=RULES, release=VERSION)
    guard = ClockGuard(clock, store.state.at_us)
    changes: list[Commit] = []
    writer = Writer(store.ledger, store.state, guard, store.private, changes.append)
    steps = (("ledger.open", opened, 0), ("policy.begin", begun, 1))
    for kind, body, cause in steps if info is None else steps[1:]:
        command = router.internal_command(kind, body, cause=cause, attempt=0, received_us=clock.wall_us())
        submission = Submission(command, router.record_of(command))
        writer.decide_now([submission])
        decision = submission.future.result().decision
        if not isinstance(decision, Accepted):
            raise SettingsError("HYPER_OPERATORS", decision.message, "correct the setting that the message names")
    for commit in changes:
        store.models.apply(commit.changes, commit.recorded, commit.pos)


def check_against_ledger(store: Store, settings: Settings) -> None:
    """Refuse settings that say something else than the ledger.

    Raises: SettingsError
    """
    info = store.state.ledger.info["ledger"]
    if info.profile != settings.profile:
        message = f"the ledger is of profile {info.profile}"
        raise SettingsError(
            "HYPER_PROFILE", message, f"serve it with --profile {info.profile}, or choose another --data"
        )
    if info.audience != settings.audience:
        message = f"the ledger was opened for audience {info.audience}"
        raise SettingsError("HYPER_AUDIENCE", message, f"set it to {info.audience}")
    policy = store.state.policy.policy_at(store.state.at_us).policy
    for name, value in settings.policy_overrides.items():
        found = getattr(policy, name)
        if found != value:
            message = f"the ledger's policy says {found} for {name}, the environment says {value}"
            fix = "unset it, or adopt a policy with `hypercluster operator policy adopt`"
            raise SettingsError(variable_of(name), message, fix)


def ssh_client(settings: Settings, directory: Path) -> Ssh:
    """The SSH client with the challenge's own key, made at the first start.

    Raises: SettingsError
    """
    path = settings.ssh_key_path or directory / "keys" / "ssh_client"
    try:
        allowed = Allowed(settings.profile, settings.ssh_allow_networks)
    except ValueError as error:
        fix = "name private or carrier-grade ranges only, as 10.0.0.0/8"
        raise SettingsError("HYPER_SSH_ALLOW_NETWORKS", str(error), fix) from error
    try:
        if not path.exists():
            fresh = path.with_name(path.name + ".new")  # complete or absent, never half-written
            fresh.unlink(missing_ok=True)
            generate_client_key(fresh)
            fresh.rename(path)
        return Ssh(path, allowed, connect_timeout_s=settings.ssh_connect_timeout_s)
    except (OSError, ValueError) as error:
        fix = "name a private key in OpenSSH format without a passphrase, or a file to make in a directory that exists"
        raise SettingsError("HYPER_SSH_KEY_PATH", f"{path} is no usable key: {error}", fix) from error


@asynccontextmanager
async def workers(service: Service) -> AsyncIterator[None]:
    """All workers, unless the settings ask for the API alone."""
    if not service.settings.combined_worker:
        log.warning("no_workers", meaning="jobs are accepted but nothing runs them; leases do not expire")
        yield
        return
    supervisor, attempts = Supervisor(service.failing_workers), Attempts(service)
    supervisor.start("leases", lambda: expire_leases(service))
    supervisor.start("nodes", lambda: reclaim_nodes(service))
    supervisor.start("placement", lambda: place_jobs(service))
    supervisor.start("attempts", attempts.watch)
    supervisor.start("retention", Retention(service).sweep)
    supervisor.start("snapshots", lambda: take_snapshots(service))
    try:
        yield
    finally:
        service.stopping.set()
        await supervisor.stop()
        await attempts.stop()
