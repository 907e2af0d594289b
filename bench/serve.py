"""Pages over a million letters in 10,000 failures, beside 200 plans: the processor time of the server for each
address, of a server that has just begun, again, and after a note; then the first paint by Chromium:
bench/serve.py [LETTERS [FAILURES [PLANS]]], or bench/serve.py FOLDER, where the archive is made once and kept."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow.compute as pc
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.servers.chromium import Page, chromium
from support.serving import Server, serving
from views import ROWS, generate

from dlq.archive import analyses, manifests
from dlq.archive.storage.store import Store, open_store
from dlq.connectors.base import Target
from dlq.core.clock import iso, now
from dlq.core.settings import Ledger
from dlq.replay import ledger
from dlq.replay.plans.letters import Letter
from dlq.replay.plans.planfile import Draft, Header

RUNS = 7
IN_A_PLAN = 500
PAGES = (
    "/", "/letters", "/letters?cause=unknown", "/letters?text=timeout", "/failures", "/failures?state=new",
    "/plans", "/incidents", "/audit",
)  # fmt: skip
TARGETS = {"/": 300, "/letters": 500}
FAILURE = f"/failures/{7:016x}"
MEMORY = 600
"""MiB."""


class Size(NamedTuple):
    """What lies in the archive."""

    letters: int = 1_000_000
    failures: int = 10_000
    plans: int = 200


def main(*arguments: str) -> int:
    """Serve an archive, and tell the median of some paints; 1 where a target is missed."""
    if arguments and not arguments[0].isdecimal():
        return serve(Path(arguments[0]), Size())
    with tempfile.TemporaryDirectory(prefix="dlq-bench-") as name:
        return serve(Path(name), Size(*map(int, arguments)))


def serve(folder: Path, size: Size) -> int:
    """Make the archive of this folder where there is none yet, and serve it."""
    first = folder / "first"
    if not first.exists():
        store = open_store(os.path.join(folder, "archive"))
        found = generate(store, size.letters, size.failures)
        make_plans(store, size.plans)
        (folder / "dlq.toml").write_text('archive = "./archive"\n[serve.roles]\ntriage = ["*"]\n')
        first.write_text(found)
        print(f"{size.letters:,} letters, {size.failures:,} failures, {size.plans:,} plans")
    return measure(folder, f"/letters/{first.read_text()}")


def measure(folder: Path, letter: str) -> int:
    """The pages of this archive; 1 where a target is missed."""
    for path in (*PAGES, letter, FAILURE, "/books"):
        with serving(folder) as cold:
            cold.enter()
            ask(cold, path, letter.rpartition("/")[2])
    with serving(folder) as server, chromium() as page:
        server.enter()
        page.call("Page.navigate", url=server.address)
        base = f"http://127.0.0.1:{server.port}"
        missed = [path for path in (*PAGES, letter) if not show(server, page, base, path)]
        process = psutil.Process(server.process.pid)
        warm = process.memory_info().rss / 2**20
        with ThreadPoolExecutor(10) as browsers:
            list(browsers.map(server.get, (f"/letters?attempts={n}" for n in range(10))))
        used = process.memory_info().rss / 2**20
        print(f"resident memory {warm:.0f} MiB, with ten browsers at once {used:.0f} MiB (at most {MEMORY})")
    return 1 if missed or used > MEMORY else 0


def make_plans(store: Store, plans: int) -> None:
    """Plans of IN_A_PLAN letters each; every other one was sent."""
    chosen = _choose(store, plans)
    with ledger.opened(Ledger(), store) as book:
        for number in range(plans):
            letters = list(islice(chosen, IN_A_PLAN))
            header = _write(store, number, letters)
            if number % 2 == 0:
                book.adopt([_confirmed(header.plan, one) for one in letters])


def _confirmed(plan: str, letter: Letter) -> tuple[object, ...]:
    about = (plan, letter.number, letter.record_id, str(letter.target), letter.lap)
    return (letter.key, *about, "confirmed", "bench", 0, now(), now(), "")


def _choose(store: Store, plans: int) -> Iterator[Letter]:
    """Of one failure after the other, as people plan them."""
    last = analyses.latest(store)
    assert last is not None
    verdicts = pq.read_table(store.parquet(last.tables["verdicts"][0]), columns=["record_id", "fingerprint"])
    places = pc.sort_indices(verdicts["fingerprint"])[: plans * IN_A_PLAN]
    ids = verdicts["record_id"].take(places).to_pylist()
    for number, (place, record_id) in enumerate(zip(places.to_pylist(), ids, strict=True)):
        key = sha256(record_id.encode()).hexdigest()[:32]
        stem, row = last.segments[place // ROWS], place % ROWS
        yield Letter(number % IN_A_PLAN, record_id, key, 1, "shop", stem, row, Target("queue", "orders"))


def _write(store: Store, number: int, letters: list[Letter]) -> Header:
    digests = {one.stem: one.digest for one in manifests.list_committed(store)}
    with tempfile.TemporaryFile() as spool:
        draft = Draft(spool)
        draft.add(letters)
        header = Header(
            plan=f"20261121T{number:06d}-{number:06x}",
            created_at=iso(now()),
            where=f"fingerprint = '{number:016x}'",
            to="failed",
            letters=draft.letters,
            targets={"queue:orders": draft.letters},
            brokers={"shop": draft.letters},
            segments={one: digests[one] for one in draft.segments},
        )
        header = replace(header, digest=draft.digest(header))
        draft.commit(store, header)
    return header


def ask(server: Server, path: str, letter: str) -> None:
    """Print what a page costs a server that has just begun and has looked by itself, again, when somebody has
    written a note (which costs something, too), and when a letter was dismissed, so that all that is of
    letters is made anew."""
    own, look = wait_until_idle(server), partial(server.get, path)
    first, again = spend(server, look), spend(server, look)
    server.get("/audit")  # whose form the note is sent by
    note = spend(server, partial(server.post, f"{FAILURE}/note", {"text": "seen"}, "/audit"))
    noted = spend(server, look)
    server.post("/letters/chosen", {"id": letter, "act": "dismiss", "reason": "seen"}, "/audit")
    anew = spend(server, look)
    server.post("/letters/chosen", {"id": letter, "act": "undo"}, "/audit")
    told = f"first {first:5.0f}, again {again:4.0f}, noted {noted:5.0f}, anew {anew:5.0f} ms"
    print(f"{path[:40]:<42} {told} (its own look {own:5.0f}, a note {note:4.0f})", flush=True)


def wait_until_idle(server: Server) -> float:
    """Milliseconds of a processor that the server has taken since it began to listen, once it rests."""
    process = psutil.Process(server.process.pid)
    first, before, spent = _read(process), -1.0, 0.0
    while spent > before:
        time.sleep(1)
        before, spent = spent, _read(process)
    return 1000 * (spent - first)


def _read(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))


def spend(server: Server, act: Callable[[], object]) -> float:
    """Milliseconds of a processor that the server takes meanwhile."""
    process = psutil.Process(server.process.pid)
    before = _read(process)
    act()
    return 1000 * (_read(process) - before)


def show(server: Server, page: Page, base: str, path: str) -> bool:
    """Whether a page keeps its target; prints how long it took, and the processor time of the server."""
    page.open(base + path)
    process = psutil.Process(server.process.pid)
    before = _read(process)
    seconds = sorted(paint(page, base + path) for _ in range(RUNS))[RUNS // 2]
    spent = 1000 * (_read(process) - before) / RUNS
    wanted = TARGETS.get(path)
    told = f" (at most {wanted})" if wanted else ""
    print(f"{path[:40]:<42} {seconds:6.0f} ms{told:<16} {spent:6.0f} ms of a processor", flush=True)
    return wanted is None or seconds <= wanted


def paint(page: Page, url: str) -> float:
    """Milliseconds until the first paint of what the page holds."""
    page.open("about:blank")
    page.open(url)
    while not (told := page.run("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")):
        time.sleep(0.02)
    return float(told)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
