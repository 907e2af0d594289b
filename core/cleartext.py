"""Which passwords of a configuration go to another host without TLS. Reads no file and asks nobody."""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from dlq.core.settings import Broker

_BY_TLS: Mapping[str, str] = {
    "amqp": "amqps://",
    "stomp": "stomp+tls://",
    "tcp": "ssl://",
    "rocketmq": "rocketmq+tls://",
    "http": "https://",
    "redis": "rediss:// (and ?ssl_ca_certs=FILE)",
    "postgresql": "?sslmode=verify-full (and &sslrootcert=FILE)",
    "postgres": "?sslmode=verify-full (and &sslrootcert=FILE)",
    "mysql": "?ssl_ca=FILE",
    "mariadb": "?ssl_ca=FILE",
}
"""Scheme without TLS -> what to write for it."""
_ENCRYPTED = ("require", "verify-ca", "verify-full")
"""Values of PostgreSQL's sslmode that never fall back to no TLS."""


class Store(Protocol):
    """A ledger, or a store of evidence."""

    @property
    def url(self) -> str:
        """Where it is."""

    @property
    def password_file(self) -> str | None:
        """One of three places of the password."""

    @property
    def password_command(self) -> tuple[str, ...] | None:
        """The second."""

    @property
    def password_env(self) -> str | None:
        """The third."""


def of_broker(broker: Broker) -> list[str]:
    """One line for each url of a broker that takes its password in the clear to another host."""
    place = f"brokers.{broker.name}"
    if broker.kind == "rocketmq":
        exposed = [] if broker.ca_file else list(_hosts_in_the_clear(broker.url))
        what = "signed requests go to {host} without TLS, where they can be read and repeated"
        return [_line(f"{place}.url", what, exposed, broker.url)] if exposed and broker.access_key else []
    if not _has_password(broker):
        return []
    urls = {name: getattr(broker, name) for name in ("url", "management_url", "jolokia_url", "openwire_url")}
    found = [(name, url, list(_hosts_in_the_clear(url))) for name, url in urls.items() if url]
    return [_line(f"{place}.{name}", _IN_THE_CLEAR, hosts, url) for name, url, hosts in found if hosts]


def of_store(place: str, store: Store) -> list[str]:
    """The same of a ledger, or of a store of evidence, at `place`."""
    exposed = list(_hosts_in_the_clear(store.url)) if _has_password(store) else []
    return [_line(f"{place}.url", _IN_THE_CLEAR, exposed, store.url)] if exposed else []


_IN_THE_CLEAR = "the password goes to {host} without TLS"


def _line(place: str, what: str, hosts: list[str], url: str) -> str:
    return f"{place}: {what.format(host=hosts[0])}; write {_BY_TLS[urlsplit(url).scheme]}"


def _has_password(holder: Store | Broker) -> bool:
    return any((holder.password_file, holder.password_command, holder.password_env))


def _hosts_in_the_clear(url: str) -> Iterator[str]:
    """The hosts of a url that are not this one, where it asks for no TLS."""
    try:
        parts = urlsplit(url)
        query = parse_qs(parts.query)
    except ValueError:  # whoever connects will say so
        return
    is_encrypted = query.get("sslmode", [""])[-1] in _ENCRYPTED or "ssl_ca" in query or "ssl_capath" in query
    if parts.scheme not in _BY_TLS or is_encrypted:
        return
    for address in parts.netloc.rpartition("@")[2].split(","):
        host = address.rpartition("]")[0].lstrip("[") if "[" in address else address.partition(":")[0]
        if host and not _is_here(host):
            yield host


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
