"""Which addresses are of the public internet, for requests that the server sends to where somebody else says. Pure."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: an IPv4 address in the last 32 bits
# Of IANA's registries of special addresses those that Python takes for public ones: relays, sinks, documentation.
_SPECIAL = [
    ip_network(one)
    for one in (
        "192.0.0.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24", "2002::/16",
        "2620:4f:8000::/48", "3fff::/20", "5f00::/16",
    )
]  # fmt: skip


def is_public(address: Address) -> bool:
    """Whether it is an address of the public internet: not of this machine, a link, a private network or a group."""
    if any(address in network for network in _SPECIAL):
        return False
    is_local = isinstance(address, IPv6Address) and address.is_site_local
    return address.is_global and not (is_local or address.is_multicast or address.is_reserved or address.is_unspecified)


def is_in(address: Address, networks: Iterable[Network]) -> bool:
    """Whether it is in one of these networks, itself or as the IPv4 address that it stands for."""
    return any(one in network for one in (address, unwrapped(address)) for network in networks)


def unwrapped(address: Address) -> Address:
    """Return the IPv4 address that a translation would take out of an IPv6 one; any other as it is."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else address)
