"""Hosts of addresses: whether one is this host, and whether a configuration lets anything go to it."""

import ipaddress
from collections.abc import Sequence
from fnmatch import fnmatchcase


def host_of(address: str) -> str:
    """Return the host of host:port, [host]:port, host or [host]. It must be what is connected to: a::1:9876
    is no address of a host named a."""
    host, colon, port = address.rpartition(":")
    return (host if colon and "]" not in port else address).strip("[]")


def is_here(host: str) -> bool:
    """Return whether it is this host, whoever resolves its name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _is_allowed(host: str, named: Sequence[str], hosts: Sequence[str]) -> bool:
    """Return whether connections may go to a host: one that the configuration names in a url, or that is like
    one of `hosts`; all of them where there are none."""
    wanted = host.lower()
    return not hosts or wanted in map(str.lower, named) or any(fnmatchcase(wanted, h.lower()) for h in hosts)


def why_not(
    address: str,
    named: Sequence[str],
    hosts: Sequence[str],
    broker: str,
    so_far: str = "nothing was sent there",
) -> str | None:
    """Return why nothing goes to an address that others have named, and what is known of it `so_far`; None
    where it may."""
    if _is_allowed(host_of(address), named, hosts):
        return None
    return (
        f"{broker} names {address[:200]}, and brokers.{broker}.hosts allows {', '.join(hosts)} alone: "
        f"{so_far}; add it, if it is yours"
    )
