"""Which passwords of a configuration go to another host without TLS. Reads no file and asks nobody."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from dlq.core.brokers import Holder, password_in_the_clear, plugin_of, plugins
from dlq.core.settings import Broker
from dlq.core.values.hosts import host_of, is_here

_STORES: Mapping[str, str] = {
    "http": "https://",
    "redis": "rediss:// (and ?ssl_ca_certs=FILE)",
    "postgresql": "?sslmode=verify-full (and &sslrootcert=FILE)",
    "postgres": "?sslmode=verify-full (and &sslrootcert=FILE)",
    "mysql": "?ssl_ca=FILE",
    "mariadb": "?ssl_ca=FILE",
}
"""Scheme without TLS -> what to write for it; those of brokers are in their descriptions."""
_ENCRYPTED = ("require", "verify-ca", "verify-full")
"""Values of PostgreSQL's sslmode that never fall back to no TLS."""


class _Store(Holder, Protocol):
    """A ledger, or a store of evidence."""

    @property
    def url(self) -> str:
        """Where it is."""


def of_broker(broker: Broker) -> list[str]:
    """Return one line for each url of a broker that takes its secret in the clear to another host; and where
    its cluster names the hosts that it goes to, whoever is asked first."""
    kind = plugin_of(broker.kind)
    what, others = kind.in_the_clear(broker), _named_by_others(broker)
    if what is None:
        return []
    more = f" and {others}" if others else ""
    lines = _lines(f"brokers.{broker.name}", what.replace("{host}", f"{{host}}{more}"), broker.urls())
    scheme = urlsplit(broker.url).scheme
    if others and not lines and scheme in kind.by_tls:
        lines = [f"brokers.{broker.name}.url: {what.format(host=others)}; write {kind.by_tls[scheme]}"]
    return [f"{line}, or limit the addresses: hosts" for line in lines] if others == _ANY else lines


_ANY = "every address that it names"


def _named_by_others(broker: Broker) -> str:
    """Return the other hosts to which a broker's secret may go, or nothing where there are none."""
    if not plugin_of(broker.kind).names_others:
        return ""
    hosts: Sequence[str] = getattr(broker, "hosts", ())
    return ", ".join(host for host in hosts if not is_here(host)) if hosts else _ANY


def of_store(place: str, store: _Store) -> list[str]:
    """Return a warning where this store's password goes out in the clear; `place` names it in settings."""
    what = password_in_the_clear(store)
    return _lines(place, what, {"url": store.url}) if what else []


def _lines(place: str, what: str, urls: Mapping[str, str]) -> list[str]:
    by_tls = {
        **_STORES,
        **{scheme: tls for kind in plugins().values() for scheme, tls in kind.by_tls.items()},
    }
    exposed = {name: list(_hosts_in_the_clear(url, by_tls)) for name, url in urls.items()}
    return [
        f"{place}.{name}: {what.format(host=hosts[0])}; write {by_tls[urlsplit(urls[name]).scheme]}"
        for name, hosts in exposed.items()
        if hosts
    ]


def _hosts_in_the_clear(url: str, by_tls: Mapping[str, str]) -> Iterator[str]:
    """Yield the hosts of a url that are not this one, where it asks for no TLS."""
    try:
        parts = urlsplit(url)
        query = parse_qs(parts.query)
    except ValueError:  # whoever connects will say so
        return
    is_encrypted = query.get("sslmode", [""])[-1] in _ENCRYPTED or "ssl_ca" in query or "ssl_capath" in query
    if parts.scheme not in by_tls or is_encrypted:
        return
    for address in parts.netloc.rpartition("@")[2].split(","):
        host = host_of(address)
        if host and not is_here(host):
            yield host
