"""Servers that mean harm: they listen on loopback alone, hear what comes, and behave as they are told."""

import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

Behaviour = Callable[[socket.socket], None]


class Server:
    """`behave` gets each connection, in a thread of its own."""

    def __init__(self, behave: Behaviour, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.connections = 0
        self._behave, self._tls = behave, tls
        self._listener = socket.create_server((host, 0))
        self.place = self._listener.getsockname()
        self.address = "{}:{}".format(*self.place)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._one, args=(connected,), daemon=True).start()

    def _one(self, connected: socket.socket) -> None:
        # Whom we harm hangs up: that is how it should end.
        with contextlib.suppress(OSError), connected:
            peer = self._tls.wrap_socket(connected, server_side=True) if self._tls else connected
            with peer:
                self._behave(peer)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone does not wake accept().
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def answering(answer: bytes, after: bytes = b"\r\n\r\n") -> Behaviour:
    """Hear until `after` has come, say `answer`, then listen until the other side hangs up."""

    def behave(peer: socket.socket) -> None:
        _hear(peer, after)
        peer.sendall(answer)
        while peer.recv(2**16):
            pass

    return behave


def _hear(peer: socket.socket, until: bytes) -> None:
    heard = b""
    while until not in heard and (data := peer.recv(2**16)):
        heard += data


def hearing(heard: bytearray) -> Behaviour:
    """Keep all that comes, and say nothing."""

    def behave(peer: socket.socket) -> None:
        while data := peer.recv(2**16):
            heard.extend(data)

    return behave


def endless(beginning: bytes, piece: bytes, after: bytes = b"\r\n\r\n") -> Behaviour:
    """Hear a question up to `after`, say the beginning, and then `piece` for ever."""

    def behave(peer: socket.socket) -> None:
        _hear(peer, after)
        peer.sendall(beginning)
        while True:
            peer.sendall(piece)

    return behave


def dripping(beginning: bytes, seconds: float = 0.05) -> Behaviour:
    """The beginning, and then a byte now and then, for ever."""

    def behave(peer: socket.socket) -> None:
        peer.recv(2**16)
        peer.sendall(beginning)
        while True:
            time.sleep(seconds)
            peer.sendall(b"x")

    return behave


def certificate(folder: Path, *names: str) -> Path:
    """A self-signed certificate with its key, in one file, for `names` (DNS:host or IP:address)."""
    path = folder / f"{'-'.join(names).replace(':', '-')}.pem"
    if not path.exists():
        subject = "-subj", "/CN=dlq test", "-addext", f"subjectAltName={','.join(names)}"
        kind = "-days", "2", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"
        files = "-keyout", str(path.with_suffix(".key")), "-out", str(path)
        subprocess.run(["openssl", "req", "-x509", *subject, *kind, *files], check=True, capture_output=True)
        path.write_text(path.read_text() + path.with_suffix(".key").read_text())
    return path


def speaking_tls(pem: Path) -> ssl.SSLContext:
    """A server's side of TLS with that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context
