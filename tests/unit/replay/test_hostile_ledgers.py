"""A ledger's server that offers no TLS, though the configuration asks for it, never gets the password."""

import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from support.servers.hostile import Server, certificate

from dlq.archive.store import LocalStore
from dlq.core.errors import DlqError, LedgerUnreachable
from dlq.core.settings import Ledger
from dlq.replay import ledger

PASSWORD = "s3cret-of-the-ledger"
_CAPABILITIES = 0x0008 | 0x0200 | 0x8000 | 0x80000
"""With a database, protocol 4.1, secure connections, plugins; without TLS (0x0800)."""


def _packet(number: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "little") + bytes([number]) + content


def _greeting(plugin: bytes) -> bytes:
    low, high = _CAPABILITIES & 0xFFFF, _CAPABILITIES >> 16
    fields = struct.pack("<I8sBHBHHB10s13s", 7, b"x" * 8, 0, low, 45, 2, high, 21, b"", b"y" * 12)
    return _packet(0, b"\x0a8.4.0\0" + fields + plugin + b"\0")


def mysql(heard: bytearray, plugin: bytes) -> Callable[[socket.socket], None]:
    """Greets with a plugin, and asks for the password in the clear whatever comes."""

    def behave(peer: socket.socket) -> None:
        peer.sendall(_greeting(plugin))
        heard.extend(peer.recv(2**16))
        peer.sendall(_packet(2, b"\xfemysql_clear_password\0"))
        heard.extend(peer.recv(2**16))

    return behave


def postgresql(heard: bytearray, answer: bytes) -> Callable[[socket.socket], None]:
    """Says to a request for TLS what it is told to, and asks for the password in the clear."""

    def behave(peer: socket.socket) -> None:
        peer.recv(8)
        peer.sendall(answer)
        heard.extend(peer.recv(2**16))
        peer.sendall(b"R\0\0\0\x08\0\0\0\x03")
        heard.extend(peer.recv(2**16))

    return behave


@pytest.mark.parametrize(("server", "says", "url"), [
    (mysql, b"mysql_clear_password", "mysql://u@{address}/d?ssl_ca={ca}"),
    (mysql, b"mysql_native_password", "mysql://u@{address}/d?ssl_ca={ca}"),
    (mysql, b"caching_sha2_password", "mariadb://u@{address}/d?ssl_ca={ca}"),
    (postgresql, b"N", "postgresql://u@{address}/d?sslmode=verify-full&sslrootcert={ca}"),
    (postgresql, b"N", "postgresql://u@{address}/d?sslmode=require"),
    (postgresql, b"S", "postgresql://u@{address}/d?sslmode=verify-full&sslrootcert={ca}"),
])  # fmt: skip
def test_a_server_without_tls_gets_no_password(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: Callable[[bytearray, bytes], Callable[[socket.socket], None]],
    says: bytes,
    url: str,
) -> None:
    monkeypatch.setenv("LEDGER", PASSWORD)
    heard, ca = bytearray(), certificate(tmp_path, "DNS:db")
    with Server(server(heard, says)) as hostile:
        settings = Ledger(url=url.format(address=hostile.address, ca=ca), password_env="LEDGER")
        with (
            pytest.raises(DlqError) as refused,
            ledger.opened(settings, LocalStore(str(tmp_path / "archive"))),
        ):
            pass
        assert hostile.connections > 0
    assert PASSWORD.encode() not in heard
    assert PASSWORD not in str(refused.value)


def test_the_name_of_a_database_steers_no_terminal(tmp_path: Path) -> None:
    with Server(lambda peer: None) as closing:
        settings = Ledger(url=f"postgresql://u@{closing.address}/d%1B[2J")
        with (
            pytest.raises(LedgerUnreachable, match="cannot be reached") as refused,
            ledger.opened(settings, LocalStore(str(tmp_path / "archive"))),
        ):
            pass
    assert str(refused.value).isprintable()
