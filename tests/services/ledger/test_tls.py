"""Ledgers by TLS on real servers: what the url says of TLS is done, and a stranger's certificate refused."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.servers.hostile import certificate
from support.servers.ledgers import SERVERS, MariaDb, Postgres, Server, why_missing

from dlq.archive.storage.store import LocalStore
from dlq.core.errors import LedgerUnreachable
from dlq.core.runtime import patience
from dlq.core.settings import Ledger as LedgerSettings
from dlq.replay.ledger import opened


class PostgresByTls(Postgres):
    def command(self) -> Sequence[str]:
        pem = self.folder / "server.pem"
        return [*super().command(), "-c", "ssl=on", "-c", f"ssl_cert_file={pem}", "-c", f"ssl_key_file={pem}"]


class MariaDbByTls(MariaDb):
    def command(self) -> Sequence[str]:
        pem = self.folder / "server.pem"
        return [*super().command(), f"--ssl-cert={pem}", f"--ssl-key={pem}"]


KINDS: dict[str, type[Server]] = {"postgres": PostgresByTls, "mariadb": MariaDbByTls}


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """One whose certificate is of 127.0.0.1, and not of localhost."""
    if why := why_missing(request.param):
        pytest.skip(why)
    assert KINDS.keys() == SERVERS.keys()
    made = KINDS[request.param]()
    pem = made.folder / "server.pem"
    shutil.copy(certificate(tmp_path, "IP:127.0.0.1"), pem)
    pem.chmod(0o600)
    shutil.chown(pem, made.user)
    made.start()
    yield made
    made.stop()


def by_tls(server: Server, authority: Path, host: str = "127.0.0.1") -> LedgerSettings:
    words = {"postgres": f"sslmode=verify-full&sslrootcert={authority}", "mariadb": f"ssl_ca={authority}"}
    return LedgerSettings(url=f"{server.url.replace('127.0.0.1', host)}?{words[server.kind]}")


def test_a_ledger_by_tls_opens_and_a_stranger_or_another_name_does_not(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "AWAY", 0.0)
    authority = certificate(tmp_path, "IP:127.0.0.1")
    with opened(by_tls(server, authority), LocalStore(str(tmp_path / "archive"))) as ledger:
        assert ledger.expire() == 0
    strangers = by_tls(server, certificate(tmp_path, "IP:127.0.0.2"))
    for wrong in (strangers, by_tls(server, authority, "localhost")):
        with (
            pytest.raises(LedgerUnreachable, match=r"(?i)certificate|hostname"),
            opened(wrong, LocalStore(str(tmp_path / "other"))) as ledger,
        ):
            ledger.expire()
