"""An archive on a real S3 server: the store's contract, locks that end, and every command."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support import preloaded
from support.analyzers.quick_spark import JAVA, QUICK
from support.servers.s3_server import S3Server
from support.servers.spark_cluster import SparkCluster
from support.store_contract import Opening, StoreContract
from support.waiting import PATIENCE, eventually

from dlq.analyzers import analysis
from dlq.archive import manifests, user_sql, views
from dlq.archive.storage import s3_lock
from dlq.archive.storage.s3 import S3Store
from dlq.archive.storage.store import open_store
from dlq.cli.app import run
from dlq.connectors.memory import MemoryBroker
from dlq.core.errors import ArchiveError, Busy, UsageError
from dlq.core.settings import Ledger as LedgerSettings
from dlq.replay.ledger import move, open_ledger


class TestS3(StoreContract):
    """The suite, on a bucket."""

    @pytest.fixture
    def opening(self, s3_location: str) -> Opening:
        return lambda: open_store(s3_location)


def test_the_lock_of_a_process_that_was_killed_is_free_at_once(s3_location: str) -> None:
    script = (
        "import os, sys; from dlq.archive.storage.store import open_store\n"
        "with open_store(sys.argv[1]).lock('work'): os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", script, s3_location], check=False)
    store = open_store(s3_location)
    assert store.list("locks/") == ["locks/work"]
    with store.lock("work"):
        pass


def test_the_lock_of_a_dead_host_ends_with_its_lease(
    s3_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = S3Store(s3_location)
    path = f"{s3_location.removeprefix('s3://')}/locks/work"
    dead = s3_lock.Lock(store.filesystem, path, "work", lease=PATIENCE)

    def do_there(act: Callable[[], object]) -> None:
        north = {"pid": 7, "host": "north", "processes": "elsewhere"}
        with monkeypatch.context() as there:
            there.setattr(s3_lock, "_own_process", lambda: north)
            act()

    do_there(dead.take)
    with pytest.raises(Busy, match="pid 7 on north"), store.lock("work"):
        pass
    dead._lease = 1.0
    do_there(dead.renew)

    def is_taken() -> bool:
        with suppress(Busy), store.lock("work"):
            return not dead.renew()
        return False

    eventually(is_taken)


def test_who_lets_go_late_leaves_the_lock_of_another(
    s3_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = S3Store(s3_location)
    with store.lock("work"):
        path = f"{s3_location.removeprefix('s3://')}/locks/work"
        taken_over = partial(store.filesystem.pipe_file, path, b'{"token": "of another"}')
        monkeypatch.setattr(store._locks[0], "check", taken_over)
    assert store.get("locks/work") == b'{"token": "of another"}'


def test_one_that_has_lost_its_lock_writes_no_more(s3_location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = S3Store(s3_location)
    with store.lock("work"):
        store.put("before", b"")
        monkeypatch.setattr(store._locks[0], "_fresh_until", (0.0, 0.0))
        with pytest.raises(ArchiveError, match="the lock work was lost"):
            store.put("after", b"")
    assert "after" not in store.list("")


def test_what_is_written_only_when_the_lock_has_ended_does_not_count(
    s3_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has taken the lock over did not see it, so nothing may be acknowledged for it."""
    store = S3Store(s3_location)
    write = store.filesystem.pipe_file

    def write_late(*words: Any, **more: Any) -> None:
        write(*words, **more)
        monkeypatch.setattr(store._locks[0], "_fresh_until", (0.0, 0.0))

    monkeypatch.setattr(store.filesystem, "pipe_file", write_late)
    with store.lock("work"), pytest.raises(ArchiveError, match="the lock work was lost"):
        store.put("late", b"")


@pytest.mark.parametrize("ignored", ["If-None-Match", "If-Match"])
def test_a_store_that_ignores_conditions_cannot_lock(
    s3_location: str, monkeypatch: pytest.MonkeyPatch, ignored: str
) -> None:
    store = S3Store(s3_location)
    call = store.filesystem.call_s3

    def ignoring(name: str, **more: Any) -> Any:
        more.pop(ignored.replace("-", ""), None)
        return call(name, **more)

    monkeypatch.setattr(store.filesystem, "call_s3", ignoring)
    with pytest.raises(ArchiveError, match=f"ignores {ignored}"), store.lock("work"):
        pass


def test_a_store_that_cannot_be_reached_is_one_line(
    s3_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArchiveError, match="cannot write a in the archive s3://nobody"):
        open_store("s3://nobody/here").put("a", b"")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(ArchiveError, match="cannot read") as caught:
        open_store(s3_location).get("a")
    assert "wrong" not in str(caught.value)


def test_an_archive_on_s3_has_one_ledger(s3_location: str, tmp_path: Path) -> None:
    store = open_store(s3_location)
    with pytest.raises(UsageError, match="needs a ledger on a server"):
        open_ledger(LedgerSettings(), store)
    here, there = (LedgerSettings(url=f"sqlite:///{tmp_path}/{name}.db") for name in ("here", "there"))
    open_ledger(here, store).close()
    open_ledger(here, store).close()
    with pytest.raises(UsageError, match="dlq ledger move"):
        open_ledger(there, store)
    with pytest.raises(UsageError, match="dlq ledger move --from"):
        move(there, store)
    assert move(there, store, f"{tmp_path}/here.db") == (0, 0)
    open_ledger(there, store).close()


DEATHS = [{"count": 1, "reason": "rejected", "queue": "orders", "exchange": "", "routing-keys": ["orders"]}]
ORDERS: list[dict[str, Any]] = [
    {
        "broker_kind": "rabbitmq", "body_text": f"order {n}",
        "headers": {"x-death": DEATHS, **({"x-exception-message": f"shop.E: no {n}"} if n % 3 else {})},
    }
    for n in range(24)
]  # fmt: skip
TWICE = "java.lang.Throwable: Suppressing duplicate delivery on connection, consumer ID:b-1-2-3:1:{}:1"
OTHERS: list[dict[str, Any]] = [
    *({
        "broker_kind": "activemq", "queue": "ActiveMQ.DLQ",
        "headers": {"message-id": f"ID:a-1-2-3:1:1:1:{n}", "original-destination": "/queue/bills",
                    "dlqDeliveryFailureCause": TWICE.format(n % 2)},
    } for n in range(6)),
    *({
        "broker_kind": "rocketmq", "topic": "%DLQ%pay", "headers": {"reconsumeTimes": 16},
        "properties": {"UNIQ_KEY": f"7F{n}"},
    } for n in range(4)),
]  # fmt: skip
CONFIGURATION = """
archive = "{archive}"
[brokers.shop]
kind = "memory"
url = "memory://{folder}/broker.db"
[sources.orders]
broker = "shop"
queue = "orders.dlq"
mode = "drain"
[profiles.nightly]
analyze = false
report = ["json:{folder}/report.json"]
metrics = "{folder}/dlq.prom"
[retain]
max_age = "0d"
[ledger]
url = "sqlite:///{folder}/ledger.db"
[spark.conf]
"spark.executor.memory" = "512m"
{few}
"spark.executor.extraJavaOptions" = "{java}"
"""


class House:
    """A configuration, an embedded broker, and the commands."""

    def __init__(self, folder: Path, archive: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.archive = folder, archive
        few = "\n".join(f'"{name}" = "{value}"' for name, value in QUICK.items())
        text = CONFIGURATION.format(archive=archive, folder=folder, few=few, java=JAVA)
        (folder / "dlq.toml").write_text(text)
        lines = (json.dumps(letter) + "\n" for letter in OTHERS)
        (folder / "letters.jsonl").write_text("".join(lines))
        self.broker = MemoryBroker(str(folder / "broker.db"))
        for queue in ("orders.dlq", "orders"):
            self.broker.declare(queue)
        self.broker.put("orders.dlq", *ORDERS)

    def __call__(self, *words: str, code: int = 0) -> Any:
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            ended = run(["-c", str(self.folder / "dlq.toml"), "-o", "json", *words])
        assert ended == code, err.getvalue()
        out.seek(0)
        text = out.read()
        return json.loads(text) if text.strip() else None

    def analyze(self, *words: str) -> Any:
        """In a process of its own: the one of the tests may have a Spark session already."""
        done = preloaded.run(["-o", "json", "analyze", *words], self.folder)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def verdicts(self) -> Any:
        """What does not depend on when and where the analysis ran."""
        left_out = "analysis, mode, pull_id, captured_at, incident_id, replay_state, body, raw_properties"
        columns = f"* exclude ({left_out}), incident_id is not null as in_incident"
        return self("query", f"select {columns} from letters order by record_id")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    spark = SparkCluster()
    spark.start()
    yield spark
    spark.stop()


@pytest.fixture
def house(s3_location: str, tmp_path: Path) -> House:
    return House(tmp_path / "house", s3_location)


def captured(house: House) -> House:
    """Its queue is drained, and the others' letters are imported."""
    assert house("pull")["sources"][0]["captured"] == len(ORDERS)
    assert house("import", f"{house.folder}/letters.jsonl")["records"] == len(OTHERS)
    return house


def test_a_cluster_classifies_on_s3_as_one_machine_does(
    house: House, tmp_path: Path, cluster: SparkCluster
) -> None:
    folder = captured(House(tmp_path / "folder", str(tmp_path / "archive")))
    causes = folder.analyze("--engine", "spark")["causes"]
    assert captured(house).analyze()["causes"] == causes  # in this process
    assert len(causes) > 3
    assert house.analyze("--master", cluster.master)["causes"] == causes
    assert house.verdicts() == folder.verdicts()


def test_every_command_works_on_s3(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "SUMMED_FROM", 1)
    assert len(captured(house)("analyze")["causes"]) > 3
    assert any("/sums/" in name for name in open_store(house.archive).list("analyses/"))
    assert house("report")["letters"] == len(ORDERS) + len(OTHERS), "as they were summed up"
    assert house("run", "nightly")["reports"] == [f"{house.folder}/report.json"]
    assert "dlq_last_success" in (house.folder / "dlq.prom").read_text()
    shown = house("ls", "--where", "source = 'orders'")
    assert house("show", shown[0]["record_id"])["record_id"] == shown[0]["record_id"]
    plan = house("replay", "plan", "--any-advice", "--where", "source = 'orders'", "--apply", "--yes")
    assert (plan["sent"], house.broker.depth("orders")) == (len(ORDERS), len(ORDERS))
    assert house("replay", "apply", plan["plan"])["sent"] == 0
    assert {row["replay_state"] for row in house("ls", "--where", "source = 'orders'")} == {"confirmed"}
    assert house("retain", "--apply", "--compact")["removed"] == len(ORDERS)
    assert house("verify")["balanced"] is True
    assert len(house("ls")) == len(OTHERS)


def test_sql_of_users_reaches_neither_the_bucket_nor_the_machine(house: House, s3_location: str) -> None:
    house("pull")
    for place in (f"{s3_location}/segments/**", f"{s3_location}/manifests/*", "/etc/hostname"):
        with pytest.raises(AssertionError, match="only the archive's views can be read"):
            house("query", f"select * from read_text('{place}')")


@pytest.fixture
def parted(house: House) -> House:
    """Its letters lie in two segments."""
    for letters in ([], ORDERS[:1]):
        house.broker.put("orders.dlq", *letters)
        house("pull", "--no-analyze")
    return house


def compact(house: House) -> None:
    """The two become one, and are removed."""
    assert house("retain", "--compact", "--apply")["segments_before"] == 2


def test_who_looks_at_what_is_compacted_between_look_and_opening_sees_all(
    parted: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, done = manifests.list_committed, []

    def listing(*words: Any, **more: Any) -> Any:
        found = list(listed(*words, **more))
        if not done:
            done.append(True)
            compact(parted)
        return iter(found)

    store = open_store(parted.archive)
    monkeypatch.setattr(manifests, "list_committed", listing)
    found = user_sql.run(views.connect(store), "SELECT count(*) FROM records")
    assert list(found.rows) == [(len(ORDERS) + 1,)]


@pytest.mark.parametrize("words", [("query", "select count(*) from letters"), ("report",), ("export", "-")])
def test_what_is_compacted_while_somebody_looks_is_said_in_a_line(
    parted: House, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connect = views.connect

    def connecting(*given: Any, **more: Any) -> Any:
        found = connect(*given, **more)
        monkeypatch.setattr(views, "connect", connect)
        compact(parted)
        return found

    monkeypatch.setattr(views, "connect", connecting)
    assert run(["-c", str(parted.folder / "dlq.toml"), *words]) == 3
    told = capsys.readouterr().err
    assert "removed while it was looked at, as `dlq retain` does: run it again" in told
    assert told.count("\n") == 1


def test_a_pull_goes_on_after_the_store_was_away(house: House, s3_server: S3Server) -> None:
    s3_server.kill()
    try:
        house("pull", code=3)
    finally:
        s3_server.start()
    assert house.broker.depth("orders.dlq") == len(ORDERS)
    assert house("pull")["sources"][0]["captured"] == len(ORDERS)
    assert house("verify")["balanced"] is True
