"""Type name and version <-> class. Folds only ever see the newest version; older ones are upcast on read."""

from collections.abc import Callable

import msgspec

from events.envelope import Envelope, Event, Recorded
from events.errors import CodecError, UnknownEvent

type Upcaster = Callable[[dict[str, object]], dict[str, object]]

_newest: dict[str, type[Event]] = {}
_upcasters: dict[tuple[str, int], Upcaster] = {}
_decoders: dict[tuple[str, int], msgspec.json.Decoder[Event]] = {}
_envelope_decoder = msgspec.json.Decoder(Envelope)


def event[E: Event](name: str, version: int = 1) -> Callable[[type[E]], type[E]]:
    """Register the class as the newest version of `name`. Refuses a second class under the same name."""

    def register(cls: type[E]) -> type[E]:
        if name in _newest:
            raise ValueError(f"{name} is registered twice")
        cls.type_name, cls.type_version = name, version
        _newest[name] = cls
        _decoders[name, version] = msgspec.json.Decoder(cls)
        return cls

    return register


def upcaster(name: str, from_version: int) -> Callable[[Upcaster], Upcaster]:
    """Register the pure step from the data of `from_version` to that of the next version."""

    def register(step: Upcaster) -> Upcaster:
        if (name, from_version) in _upcasters:
            raise ValueError(f"two upcasters for {name} version {from_version}")
        _upcasters[name, from_version] = step
        return step

    return register


def check_complete() -> None:
    """Refuse a chain of versions with a missing link; called at start.

    Raises: UnknownEvent
    """
    for name, cls in _newest.items():
        for version in range(1, cls.type_version):
            if (name, version) not in _upcasters:
                raise UnknownEvent(f"no upcaster for {name} from version {version}")


def known_types() -> dict[str, type[Event]]:
    """Every registered type by name, sorted."""
    return dict(sorted(_newest.items()))


def decode(pos: int, entry: bytes) -> Recorded:
    """The event stored in these exact leaf bytes.

    Raises: CodecError (not an envelope, or fields of the wrong type), UnknownEvent
    """
    try:
        envelope = _envelope_decoder.decode(entry)
        decoder = _decoders.get((envelope.type, envelope.tv))
        found = decoder.decode(envelope.data) if decoder else _decode_older(envelope)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CodecError(f"event {pos}: {error}") from error
    return Recorded(pos, envelope.at_us, envelope, found, entry)


def _decode_older(envelope: Envelope) -> Event:
    newest = _newest.get(envelope.type)
    if newest is None or not 1 <= envelope.tv < newest.type_version:
        raise UnknownEvent(f"{envelope.type} version {envelope.tv} is not known to this release")
    data: dict[str, object] = msgspec.json.decode(envelope.data, type=dict)
    for version in range(envelope.tv, newest.type_version):
        data = _upcasters[envelope.type, version](data)
    return msgspec.convert(data, newest)
