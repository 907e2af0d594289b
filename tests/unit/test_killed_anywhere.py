"""Kill -9 before each durable step of a pull, an apply and a move of the ledger: the next one mends it."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from shutil import copytree

import pyarrow.parquet as pq
from support.killed import is_killed, move, of, send, take
from support.replaying import QueueFile, Replaying, fill

from dlq.archive import manifests
from dlq.archive.storage.store import LocalStore
from dlq.connectors.memory import broker_at
from dlq.core.errors import UsageError
from dlq.core.failures import make_event
from dlq.replay import ledger


def killed(work: Callable[[Path], None], template: Path) -> Iterator[Path]:
    """What each kill leaves of a copy of the folder."""
    for number in count(1):
        folder = template.with_name(f"{template.name}-{number}")
        copytree(template, folder)
        if not is_killed(work, folder, number):
            break
        yield folder
    assert number > 10, "no step was seen"


def test_a_pull(tmp_path: Path) -> None:
    folder = tmp_path / "pull"
    (folder / "archive").mkdir(parents=True)
    broker = broker_at(f"memory://{folder}/broker.db")
    broker.declare("orders.dlq")
    bodies = [b"alike", b"alike", b"other", b"alike", b"alike"]
    broker.put("orders.dlq", *({"broker_kind": "rabbitmq", "body_text": body.decode()} for body in bodies))
    for left in killed(take, folder):
        take(left)
        store, found = LocalStore(f"{left}/archive"), Counter[bytes]()
        for one in manifests.list_committed(store):
            if one.rows:
                found.update(pq.read_table(store.url(one.segment), partitioning=None)["body"].to_pylist())
        assert found == Counter(bodies), left
        assert broker_at(f"memory://{left}/broker.db").sql("SELECT count(*) FROM letters") == [(0,)]
        assert len(store.list("segments/")) == len([m for m in manifests.list_committed(store) if m.rows])


def test_an_apply(tmp_path: Path) -> None:
    folder = tmp_path / "apply"
    store, config = LocalStore(f"{folder}/archive"), of(folder)
    fill(store, 3)
    with ledger.opened(config.ledger, store) as book:
        plan = Replaying(store, config, QueueFile(folder / "orders.queue"), book).plan(witness=True)
    for left in killed(send, folder):
        store, config, queue = LocalStore(f"{left}/archive"), of(left), QueueFile(left / "orders.queue")
        queue.witnesses.append(plan)
        with ledger.opened(config.ledger, store) as book:
            replay = Replaying(store, config, queue, book)
            assert replay.reconcile(plan)["unknown"] == 0, left
            replay.apply(plan)
            assert replay.states(plan) == {"confirmed": 3}, left
            assert Counter(queue.arrived()) == Counter(replay.keys(plan)), left


def test_a_move_of_the_ledger(tmp_path: Path) -> None:
    """Nothing of it is ever forgotten, by the configuration of before nor by the new one."""
    folder = tmp_path / "move"
    store, config = LocalStore(f"{folder}/archive"), of(folder)
    fill(store, 5)
    with ledger.opened(config.ledger, store) as book:
        replay = Replaying(store, config, QueueFile(folder / "orders.queue"), book)
        replay.apply(replay.plan())
        book.append([make_event(1, "ann@a", "f1", "note"), make_event(2, "ann@a", "f1", "assign")])
    for left in killed(move, folder):
        store, new = LocalStore(f"{left}/archive"), of(left, f"sqlite:///{left}/new.db").ledger
        for config_of in (of(left).ledger, new):
            with suppress(UsageError), ledger.opened_if_any(config_of, store) as found:
                assert found is not None
                assert sum(map(len, found.all_rows())) == 5, left
        if (left / "archive" / "ledger.db").exists():
            ledger.move(new, store)
        with ledger.opened(new, store) as book:
            assert sum(map(len, book.all_rows())) == 5, left
            assert len(book.events()) == 2, left
