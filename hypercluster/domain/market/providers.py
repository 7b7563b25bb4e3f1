"""Who is a provider."""

from typing import cast

from events.types.market import ProviderNamed, ProviderRegistered
from hypercluster.domain.kernel import Accepted, Command, Context, Decision, Ids, Refused
from hypercluster.domain.market.commands import RegisterProvider
from hypercluster.domain.market.supply import find_provider
from projections.fold import State


def register(state: State, command: Command, context: Context) -> Decision:
    """A hotkey becomes a provider. Asked again it stays one, and may add the name that it has not given yet."""
    body = cast(RegisterProvider, command.body)
    name = (body.display_name or "").strip() or None
    provider_id = state.market.by_hotkey.get(command.actor)
    if provider_id is None:
        provider_id = Ids(state.ledger.info["ledger"].seed, command).new("provider")
        event = ProviderRegistered(provider_id=provider_id, hotkey=command.actor, display_name=name)
        return Accepted((event,), provider_id, created=True)
    provider = state.market.providers[provider_id]
    if name is not None and provider.display_name is None:
        return Accepted((ProviderNamed(provider_id=provider_id, display_name=name),), provider_id)
    return Accepted((), provider_id, seq=provider.last_pos)


def heartbeat(state: State, command: Command, context: Context) -> Decision:
    """A provider is alive. Only its nodes' heartbeats leave a trace in the ledger."""
    provider = find_provider(state, command.actor)
    if isinstance(provider, Refused):
        return provider
    return Accepted((), provider.provider_id, seq=provider.last_pos)
