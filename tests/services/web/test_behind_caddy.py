"""The page behind a real proxy that signs people in: who they are is what the proxy says, no more."""

import base64
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest
from support.ports import free_ports
from support.serving import Server, serving, write_archive
from support.waiting import PATIENCE, eventually

CADDY = """\
{{
    admin off
    auto_https off
}}
http://dlq.example:{port} {{
    bind 127.0.0.1
    basicauth {{
        ada {word}
        eve {word}
    }}
    reverse_proxy 127.0.0.1:{upstream} {{
        header_up X-Forwarded-User {{http.auth.user.id}}
        header_up -X-Forwarded-Groups
        flush_interval -1
    }}
}}
"""
ROLES = """\
triage = ["ada"]
[serve]
proxies = ["127.0.0.1"]
hosts = ["dlq.example"]
"""


@contextmanager
def caddy(folder: Path, upstream: int) -> Iterator[int]:
    """Caddy in front of a server; its port."""
    program = shutil.which("caddy")
    assert program, "no Caddy: apt-get install caddy"
    hashed = [program, "hash-password", "--plaintext", "word"]
    word = subprocess.run(hashed, capture_output=True, text=True, check=True).stdout.strip()
    [port] = free_ports(1)
    (folder / "Caddyfile").write_text(CADDY.format(port=port, upstream=upstream, word=word))
    command = [program, "run", "--config", "Caddyfile", "--adapter", "caddyfile"]
    with open(folder / "caddy.err", "w") as errors:
        process = subprocess.Popen(command, cwd=folder, stderr=errors, env={"HOME": str(folder)})
    try:
        eventually(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE)


def ask(port: int, path: str, user: str | None = None, **headers: str) -> tuple[int, str]:
    """Status and text of a page, asked for through the proxy."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    if user is not None:
        headers["authorization"] = "Basic " + base64.b64encode(f"{user}:word".encode()).decode()
    connection.request("GET", path, headers={"host": f"dlq.example:{port}", **headers})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, int]]:
    """A server whose roles go by what Caddy says, and Caddy's port."""
    folder = tmp_path_factory.mktemp("caddy")
    write_archive(folder, 3, ROLES)
    with serving(folder) as server, caddy(folder, server.port) as port:
        yield server, port


def test_who_signs_in_at_the_proxy_is_known_by_that_name(served: tuple[Server, int]) -> None:
    server, port = served
    assert ask(port, "/letters")[0] == 401
    assert server.ask("GET", "/letters", host="dlq.example")[0].status == 401, "nor beside the proxy"
    status, text = ask(port, "/letters", "ada")
    assert status == 200
    assert "</span>ada</summary>" in text
    assert "Proven by a proxy" in text


def test_what_a_client_says_of_itself_does_not_get_past_the_proxy(served: tuple[Server, int]) -> None:
    _server, port = served
    said = {"X-Forwarded-User": "ada", "X-Forwarded-Groups": "ops"}
    assert ask(port, "/letters", **said)[0] == 401
    status, text = ask(port, "/letters", "eve", **said)
    assert status == 200
    assert "</span>eve</summary>" in text
    assert "eve may not triage failures" in text
