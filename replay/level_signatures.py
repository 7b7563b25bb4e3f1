"""Level 2: who asked. Every signed command's signature over its text, and the text against the event it stands in."""

import binascii
import hashlib
from dataclasses import dataclass, field

from events.envelope import CommandRecord, Envelope, Event
from events.errors import LedgerError
from events.private import PrivateStore
from events.registry import decode
from events.types.ledger import LedgerOpened
from events.types.policy import PolicyAdopted
from hypercluster.domain import router, strict_json
from hypercluster.domain.identity import signatures, ss58
from hypercluster.domain.identity.signed_text import V1, SignedText, SignedTextError, parse
from hypercluster.domain.kernel import SYSTEM, US_PER_S, internal_digest
from hypercluster.domain.route import Route
from hypercluster.domain.sealing import SALT_FIELD, body_field
from replay.level_bytes import Mismatch
from replay.report import Level, Progress
from replay.source import Source

BODY_PRIVATE = "body with private fields"
BODY_BLOB = "body in a blob that is not beside the ledger"
HMAC_ONLY = "HMAC signature: not checkable"


@dataclass(slots=True)
class _Reading:
    """The facts so far that signatures are judged by. windows: (since, signature window in seconds)."""

    opened: LedgerOpened
    windows: list[tuple[int, int]] = field(default_factory=list)

    def observe(self, event: Event) -> None:
        """Note a policy."""
        if isinstance(event, PolicyAdopted):
            self.windows.append((event.effective_us, event.policy.signature_window_s))

    def window_s(self, at_us: int) -> int:
        """The window in force, seconds."""
        for since, window in reversed(self.windows):
            if since <= at_us:
                return window
        return self.windows[0][1] if self.windows else 0


def check_signatures(source: Source, level: Level, opened: LedgerOpened, progress: Progress | None) -> None:
    """Check the record of every command; `level.checked` counts signatures that hold. Stops at the first wrong one."""
    level.ran = True
    reading = _Reading(opened)
    done = 0
    for page in source.pages():
        for stored in page:
            recorded = decode(stored.pos, stored.entry)
            try:
                _check(source, level, reading, recorded.pos, recorded.envelope)
            except (Mismatch, LedgerError) as error:
                level.found_wrong(stored.pos, str(error))
                return
            reading.observe(recorded.event)
        done += len(page)
        if progress:
            progress(2, done, source.size)


def _check(source: Source, level: Level, reading: _Reading, pos: int, envelope: Envelope) -> None:
    record = envelope.command
    if record is None:
        return
    if record.origin == "internal":
        _check_internal(pos, envelope, record)
    elif record.origin == "signed":
        _check_signed(source, level, reading, envelope, record)
    else:
        raise Mismatch(f"a command is signed or internal, not {record.origin!r}")


def _check_internal(pos: int, envelope: Envelope, record: CommandRecord) -> None:
    if envelope.actor != SYSTEM or record.text is not None or record.signature is not None:
        raise Mismatch("an internal command is the system's own and carries no signature")
    if record.cause is None or record.attempt is None or not 0 <= record.cause < pos:
        raise Mismatch("an internal command names an earlier event as its cause")
    if internal_digest(record.kind, record.cause, record.attempt).hex() != envelope.cmd:
        raise Mismatch("the command's digest is not that of its kind, cause and attempt")


def _check_signed(source: Source, level: Level, reading: _Reading, envelope: Envelope, record: CommandRecord) -> None:
    if record.text is None or record.signature is None or record.scheme is None:
        raise Mismatch("a signed command holds its text, scheme and signature")
    if hashlib.sha256(record.text.encode()).hexdigest() != envelope.cmd:
        raise Mismatch("the command's digest is not that of its signed text")
    try:
        text = parse(record.text)
    except SignedTextError as error:
        raise Mismatch(str(error)) from error
    route = _check_text(reading, envelope, record, text)
    _check_body(source, level, record, text, route)
    if record.scheme == signatures.HMAC:
        _check_hmac(level, reading, text)
        return
    _check_signature(record, text)
    level.checked += 1


def _check_text(reading: _Reading, envelope: Envelope, record: CommandRecord, text: SignedText) -> Route:
    if text.hotkey != envelope.actor:
        raise Mismatch(f"the text is signed by {text.hotkey}, the event says {envelope.actor}")
    if text.version != V1 and text.audience != reading.opened.audience:
        raise Mismatch(f"the text is for {text.audience}, not for this ledger's audience {reading.opened.audience}")
    window_us = reading.window_s(envelope.at_us) * US_PER_S
    if abs(text.seconds * US_PER_S - record.received_us) > window_us + US_PER_S:
        raise Mismatch("the signed time is outside the window around the time of receipt")
    matched = router.match(text.method, text.path.partition("?")[0])
    if matched is None or matched.route.kind != record.kind:
        raise Mismatch(f"{text.method} {text.path} does not ask for {record.kind}")
    return matched.route


def _check_body(source: Source, level: Level, record: CommandRecord, text: SignedText, route: Route) -> None:
    """A blob may hold the sealed body too: where the route seals fields, another hash is no proof of a lie."""
    if record.public is not None:
        _check_sealed(source, level, record.public, text, route)
        return
    body = (record.body or "").encode()
    if record.body_blob is not None:
        found = source.blob(record.body_blob)
        if found is None:
            level.withheld[BODY_BLOB] += 1
            return
        body = found
    if hashlib.sha256(body).hexdigest() == text.body_sha256:
        return
    if route.private and record.body_blob is not None:
        _check_sealed(source, level, body.decode(errors="replace"), text, route)
    else:
        raise Mismatch("the stored body is not the one that was signed")


def _check_sealed(source: Source, level: Level, public: str, text: SignedText, route: Route) -> None:
    """Compare a sealed body with the signed one, where the private file lies beside the ledger and still holds it."""
    stored = source.private.find(body_field(text.body_sha256)) if source.private is not None else None
    if source.private is None or stored is None:
        level.withheld[BODY_PRIVATE] += 1
        return
    if hashlib.sha256(stored.encode()).hexdigest() != text.body_sha256:
        raise Mismatch("the body that is kept privately is not the one that was signed")
    signed, sealed = strict_json.loads(stored.encode()), strict_json.loads(public.encode())
    if not isinstance(signed, dict) or not isinstance(sealed, dict):
        raise Mismatch("a sealed body is an object")
    signed.pop(SALT_FIELD, None)
    opened = {key: _opened(source.private, value) if key in route.private else value for key, value in sealed.items()}
    if opened != signed:
        raise Mismatch("the sealed body says something else than the one that was signed")


def _opened(private: PrivateStore, value: object) -> object:
    """A sealed value, or an object of them, with the private values in place of their commitments."""
    if isinstance(value, dict):
        return {key: _opened(private, item) for key, item in value.items()}
    return private.get(value) if isinstance(value, str) else value


def _check_hmac(level: Level, reading: _Reading, text: SignedText) -> None:
    if reading.opened.profile != "sim" or text.version != V1:
        raise Mismatch("an HMAC command stands only in a sim ledger, with a text of version 1")
    level.unverifiable[HMAC_ONLY] += 1


def _check_signature(record: CommandRecord, text: SignedText) -> None:
    scheme = record.scheme or ""
    if scheme not in (signatures.SR25519, signatures.ED25519):
        raise Mismatch(f"no signature scheme {scheme!r}")
    try:
        key, signature = ss58.decode(text.hotkey), router.signature_bytes(record)
    except (ss58.Ss58Error, binascii.Error, ValueError) as error:
        raise Mismatch(f"the hotkey or its signature cannot be read: {error}") from error
    if not signatures.verify(scheme, key, text.message(), signature):
        raise Mismatch(f"the signature of {text.hotkey} does not verify")
