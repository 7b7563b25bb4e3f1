"""Where the control plane may connect to: a node's endpoint is a stranger's word and may point anywhere."""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass

type Network = ipaddress.IPv4Network | ipaddress.IPv6Network
type Address = ipaddress.IPv4Address | ipaddress.IPv6Address

DEFAULT_PORT = 22

# What HYPER_SSH_ALLOW_NETWORKS may open: private and carrier-grade ranges, nothing else.
OPENABLE = tuple(
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)
# Ranges that embed an IPv4 address or lead somewhere that a check of the outer address does not see.
_TUNNELS = tuple(ipaddress.ip_network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"))


class NodeFailure(Exception):
    """A node kept an attempt from going on. `code` is one of policy's failure codes."""

    def __init__(self, code: str, node_id: str | None = None, rank: int | None = None) -> None:
        super().__init__(f"{code} at node {node_id}")
        self.code, self.node_id, self.rank = code, node_id, rank


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One resolved address. host: numeric, without brackets."""

    host: str
    port: int


class Allowed:
    """Which addresses a profile may connect to. extra_networks: CIDR texts of private or carrier-grade ranges.

    Raises ValueError for a network that can never be opened (loopback, link-local, or wider than a private range).
    """

    def __init__(self, profile: str, extra_networks: Sequence[str] = ()) -> None:
        self._sim = profile == "sim"
        self._extra = tuple(_openable(text) for text in extra_networks)

    def permits(self, address: Address) -> bool:
        """Whether connecting to this address is allowed."""
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if self._sim and address.is_loopback:
            return True
        if any(_inside(address, network) for network in self._extra):
            return True
        if any(_inside(address, network) for network in _TUNNELS):
            return False
        site_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
        return address.is_global and not (address.is_multicast or address.is_reserved or site_local)

    async def resolve(self, node_id: str, endpoint: str) -> Endpoint:
        """The one address to connect to. Every address that the name has must be allowed.

        Raises NodeFailure: endpoint_forbidden, or node_unreachable for a name without an address.
        """
        try:
            host, port = parse_endpoint(endpoint)
        except ValueError:
            raise NodeFailure("endpoint_forbidden", node_id) from None
        try:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise NodeFailure("node_unreachable", node_id) from None
        addresses = [ipaddress.ip_address(str(entry[4][0])) for entry in found]
        if not addresses:
            raise NodeFailure("node_unreachable", node_id)
        if not all(self.permits(address) for address in addresses):
            raise NodeFailure("endpoint_forbidden", node_id)
        return Endpoint(str(addresses[0]), port)


def parse_endpoint(endpoint: str) -> tuple[str, int]:
    """(host, port) of "host", "host:port", "[v6]" or "[v6]:port"; a bare IPv6 address is taken too. Port 22 by default.

    Raises ValueError.
    """
    host, port = endpoint, ""
    if endpoint.startswith("["):
        host, closed, rest = endpoint[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise ValueError("unbalanced brackets")
        port = rest[1:]
    elif endpoint.count(":") == 1:
        host, _, port = endpoint.partition(":")
    if not host or "%" in host or any(char.isspace() or ord(char) < 33 for char in host):
        raise ValueError("no host")
    if not port:
        return host, DEFAULT_PORT
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError("no port")
    return host, int(port)


def _openable(text: str) -> Network:
    network = ipaddress.ip_network(text)
    for wide in OPENABLE:
        if isinstance(network, ipaddress.IPv4Network) and isinstance(wide, ipaddress.IPv4Network):
            if network.subnet_of(wide):
                return network
        elif (
            isinstance(network, ipaddress.IPv6Network)
            and isinstance(wide, ipaddress.IPv6Network)
            and network.subnet_of(wide)
        ):
            return network
    raise ValueError(f"{text} is no private or carrier-grade range")


def _inside(address: Address, network: Network) -> bool:
    return address.version == network.version and address in network
