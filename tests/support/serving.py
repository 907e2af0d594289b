"""The installed `dlq serve`, with a browser that speaks HTTP by hand."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from support import preloaded
from support.servers.chromium import Page, chromium
from support.waiting import PATIENCE, eventually

from dlq.archive.storage.store import LocalStore
from dlq.connectors.memory import broker_at
from dlq.core.settings import Ledger
from dlq.replay import ledger
from dlq.replay.ledger.contract import Result
from dlq.replay.plans import planfile

DLQ = str(Path(sys.executable).parent / "dlq")
RIGHTS = ("triage", "plan", "approve", "apply", "reconcile", "unmask")
EVERYTHING = "\n".join(f'{right} = ["*"]' for right in RIGHTS)
CONFIG = """\
archive = "{archive}"
{ledger}
[brokers.shop]
kind = "memory"
url = "memory://{broker}"
[sources.orders]
broker = "shop"
queue = "orders.dlq"
[serve.roles]
{roles}
"""


def configure(
    folder: Path, roles: str = EVERYTHING, archive: str = "", ledger: str = "", broker: Path | None = None
) -> None:
    """A configuration with an embedded broker; what is not named lies in the folder."""
    where = {"archive": archive or folder / "archive", "broker": broker or folder / "broker.db"}
    Path(folder, "dlq.toml").write_text(CONFIG.format(**where, ledger=ledger, roles=roles))
    for queue in ("orders", "orders.dlq"):
        broker_at(f"memory://{where['broker']}").declare(queue)


def import_letters(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Letters of the source orders."""
    Path(folder, "letters.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run(folder, "import", "letters.jsonl", "--source", "orders")


def write_archive(folder: Path, letters: int, roles: str = EVERYTHING) -> None:
    """A configuration with an embedded broker, and an archive with so many letters."""
    configure(folder, roles)
    letter = {"broker_kind": "rabbitmq", "queue": "orders.dlq"}
    rows = ({**letter, "body_text": f"order {n}", "message_id": f"m-{n}"} for n in range(letters))
    import_letters(folder, rows)


def copy_archive(filled: Path, folder: Path) -> Path:
    """The same in another folder, which nobody has served yet."""
    shutil.copytree(filled, folder, dirs_exist_ok=True)
    config = Path(folder, "dlq.toml")
    config.write_text(config.read_text().replace(str(filled), str(folder)))
    return folder


def run(folder: Path, *words: str) -> Any:
    """What a command prints as JSON."""
    done = preloaded.run(["-o", "json", *words], folder, _environment(folder))
    assert done.returncode in (0, 3, 6), (done.returncode, done.stderr)
    return json.loads(done.stdout)


def put_in_doubt(folder: Path, plan: str, letters: int, why: str) -> None:
    """As an apply leaves the first letters of a plan whose broker said nothing of them."""
    store = LocalStore(str(folder / "archive"))
    some = [*islice(planfile.letters(store, plan), letters)]
    with ledger.opened(Ledger(), store) as book:
        book.claim(plan, some)
        book.record_results([Result(one.key, "in_doubt", why) for one in some])


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "xdg")}


class Server:
    """A running server, and one browser."""

    def __init__(self, process: subprocess.Popen[str], address: str, folder: Path) -> None:
        self.process, self.address, self.folder = process, address, folder
        self.port = int(re.findall(r":(\d+)/", address)[0])
        self.cookie = ""

    def enter(self) -> "Server":
        """Open the address that was printed."""
        answer, _text = self.ask("GET", "/" + self.address.partition("/?")[2].join(("?", "")))
        assert answer.status == 303
        self.cookie = str(answer.getheader("set-cookie")).partition(";")[0]
        return self

    def ask(
        self, method: str, path: str, fields: Mapping[str, str | Sequence[str]] | None = None, **headers: str
    ) -> tuple[HTTPResponse, str]:
        """One request, and what was answered."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        sent, body = {"cookie": self.cookie, **headers}, None
        if fields is not None:
            body = urlencode(fields, doseq=True)
            sent |= {"content-type": "application/x-www-form-urlencoded"}
            sent |= {"origin": f"http://127.0.0.1:{self.port}"}
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer, text

    def get(self, path: str, **headers: str) -> str:
        """A page."""
        answer, text = self.ask("GET", path, None, **headers)
        assert answer.status == 200, text
        return text

    def send_form(
        self, path: str, fields: Mapping[str, str | Sequence[str]], page: str = "/"
    ) -> tuple[HTTPResponse, str]:
        """Send a form of `page`, and what was answered."""
        token = re.findall(r'name="form_token" value="(\w+)"', self.get(page))[0]
        return self.ask("POST", path, {"form_token": token, **fields})

    def post(self, path: str, fields: Mapping[str, str | Sequence[str]], page: str = "/") -> str:
        """Send a form of `page`; where the browser goes next."""
        answer, text = self.send_form(path, fields, page)
        assert answer.status == 303, text
        return str(answer.getheader("location"))

    def press_apply(self, plan: str) -> tuple[HTTPResponse, str]:
        """Apply as a person does it, who has looked at the plan, and what was answered."""
        digest = re.findall(r'name="digest" value="(\w+)"', self.get(f"/plans/{plan}"))[0]
        return self.send_form(f"/plans/{plan}/apply", {"digest": digest}, f"/plans/{plan}")

    def apply_plan(self, plan: str) -> None:
        """Apply as a person does it; the page takes it."""
        answer, text = self.press_apply(plan)
        assert answer.status == 303, text

    def connect(self) -> socket.socket:
        """A connection that says nothing yet."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def kill(self) -> None:
        """End it as the kernel would for want of memory."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)

    def errors(self) -> str:
        """What it wrote on standard error until now."""
        return Path(self.folder, "serve.err").read_text()


@contextmanager
def serving(folder: Path, *options: str, config: str = "dlq.toml") -> Iterator[Server]:
    """`dlq serve` on a free port of this host."""
    with open(folder / "serve.err", "a") as errors:
        process = subprocess.Popen(
            [DLQ, "-c", config, "serve", "--port", "0", *options],
            cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True, env=_environment(folder),
        )  # fmt: skip
    try:
        assert process.stdout is not None
        yield Server(process, str(json.loads(process.stdout.readline())["address"]), folder)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)


@contextmanager
def browsing(address: str) -> Iterator[Page]:
    """A browser that has opened the printed address."""
    with chromium() as page:
        page.call("Page.navigate", url=address)
        eventually(lambda: page.shows("location.search === '' && document.title") == "Now – dlq")
        yield page
