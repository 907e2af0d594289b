"""A way to one server that ends connections after some bytes, in either direction."""

import contextlib
import socket
import threading


class Cutter:
    """Listens on `address` and passes on, until a connection has carried `requests` or `answers` bytes."""

    def __init__(self, server: str, port: int = 0) -> None:
        host, _, its_port = server.rpartition(":")
        self._server = host, int(its_port)
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests = self.answers = 2**62
        self.loses_answers = threading.Event()
        """Set: the next answer is lost, and its connection ends."""
        self._open: list[socket.socket] = []

    def __enter__(self) -> "Cutter":
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # or whoever waits for a connection keeps the port
        self._listener.close()

    def cut(self) -> None:
        """End all connections; new ones are let through."""
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._server)
                self._open += [near, far]
                never = threading.Event()
                for way in ((near, far, self.requests, never), (far, near, self.answers, self.loses_answers)):
                    threading.Thread(target=pass_on, args=way, daemon=True).start()


def pass_on(
    source: socket.socket, sink: socket.socket, room: int = 2**62, over: threading.Event | None = None
) -> None:
    """Pass on so many bytes, and none that comes when it is `over`; then end both ways."""
    with contextlib.suppress(OSError):
        while room > 0 and (data := source.recv(min(room, 65536))):
            if over is not None and over.is_set():
                break
            sink.sendall(data)
            room -= len(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)  # which ends what waits for it
        end.close()  # or who still writes to a full buffer would hang
