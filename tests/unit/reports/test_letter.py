"""What `dlq show` says of one letter."""

import base64
import gzip
import io
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console
from support.archives import MINUTE, letter, write_analysis, write_segment
from support.rows import each_row

from dlq.archive import short_ids, views
from dlq.archive.storage.store import LocalStore
from dlq.core.brokers import plugin_of
from dlq.core.errors import UsageError
from dlq.core.record import Death
from dlq.reports.letters import letter as letters
from dlq.reports.letters import letter_text, unpacking
from dlq.reports.letters.body import preview
from dlq.reports.letters.letter import with_readable_body

A = "aaaaaaaa" + "1" * 24
B = "aaaaaaaa" + "2" * 24


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(str(tmp_path))
    deaths = (
        Death("rejected", "orders", "shop", ("order.created",), 1, 2 * MINUTE),
        Death("expired", "orders.wait", "", ("orders.wait",), 3, MINUTE),
    )
    hostile = {"headers": {"\x1b]0;x\x07": "\x1b[31mred\u202e"}, "failure_text": "Boom\x1b[2J"}
    first = letter(1, record_id=A, deaths=deaths, body=b'{"b":1,"a":[]}', **hostile)
    write_segment(store, "p-0", [first, letter(2, record_id=B, body=b"\xff\xfe")])
    return store


def gather(connection: Any, prefix: str) -> dict[str, Any]:
    record_id = short_ids.record_id(connection, prefix)
    return letters.gather(connection, record_id, views.on_page(views.page_of(connection, record_id)))


def shown(store: LocalStore, prefix: str, **values: Any) -> str:
    document = gather(views.connect(store), prefix) | values
    console = Console(file=io.StringIO(), width=80)
    letter_text.render(console, document, preview(base64.b64decode(document["body_base64"])))
    return str(console.file.getvalue())  # type: ignore[attr-defined]  # the StringIO of the line above


def verdict(record_id: str, **values: Any) -> dict[str, Any]:
    known = {"record_id": record_id, "cause": "application_error", "advice": "replay", "origin": "orders"}
    return {**known, "advice_reason": "mended", **values}


def test_a_unique_prefix_of_eight_digits_addresses_a_letter_also_under_two_sources(store: LocalStore) -> None:
    write_segment(store, "p-9", [letter(1, record_id=A, source="again")])
    connection = views.connect(store)
    assert gather(connection, A[:9])["record_id"] == A
    short = "8 or more"
    odd = (("aaaaaaaa", "ambiguous"), ("bbbbbbbb", "no letter"), ("aaaa", short), ("' OR 1=1", short))
    for prefix, told in odd:
        with pytest.raises(UsageError, match=told):
            gather(connection, prefix)


def test_deaths_cause_and_advice_are_told_in_words_and_nothing_hostile_reaches_the_terminal(
    store: LocalStore,
) -> None:
    write_analysis(store, "a", [verdict(A)])
    text = shown(store, A)
    assert text.index("expired x3") < text.index("rejected "), "from the first to the last"
    assert "in orders.wait" in text
    assert "application_error: an application or framework parked it with an exception" in text
    assert "Advice: replay: mended" in text
    assert f"dlq replay plan {A[:12]}" in text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert "\\x1b[31mred\\u202e" in text


SENT = {"updated_at": "2026-11-22", "state": "confirmed", "target": "orders", "plan": "p7", "detail": ""}
DISMISSED = {**SENT, "state": "dismissed", "detail": "by Ann"}


@each_row(("values", "said"), [
    ({"rule": "r1", "mechanism": None}, "rule r1, mechanism none\n"),
    ({"rule": "r1", "stale_evidence": True}, "the evidence is older than the last death"),
    ({"also_possible": ["expired"]}, "likely, not proven: expired leaves the same trace"),
    ({"outer_exception": "com.shop.Outer"}, "in com.shop.Outer"),
    ({"fingerprint": "f00d"}, "fingerprint f00d"),
    ({"failure_text": "line\n" * 45}, "… 5 more lines; -o json shows all"),
    ({"owners": ["orders team"]}, "Owner: orders team"),
    ({"replays": [DISMISSED]}, "dismissed  by Ann"), ({"replays": [SENT]}, "confirmed  orders  plan p7"),
])  # fmt: skip
def test_what_is_known_of_a_letter_is_said(store: LocalStore, values: dict[str, Any], said: str) -> None:
    assert said in shown(store, B, **values)


@each_row(("state", "options"), [("in_doubt", ""), ("sending", ""), ("held", f" --not-sent {A[:12]}")])
def test_a_letter_whose_replay_is_undecided_is_not_offered_for_replay(
    store: LocalStore, state: str, options: str
) -> None:
    write_analysis(store, "a", [verdict(A)])
    row = {"record_id": A, "plan": "p7", "state": state, "updated_at": 1}
    ledger = pa.Table.from_pylist([row], views.REPLAYS)
    steps = gather(views.connect(store, ledger), A)["next"]
    assert [step["command"] for step in steps] == [f"dlq replay reconcile p7{options}"]


def test_what_belongs_to_the_letter_comes_along(store: LocalStore) -> None:
    group = {"duplicate_group": "g", "duplicate_kind": "message_id"}
    write_analysis(
        store, "a",
        [verdict(A, incident_id="i1", **group), verdict(B, **group)],
        incidents=[{"incident_id": "i1", "size": 2}],
        transactions=[{"unique_key": "k", "state": "pending", "record_ids": [A]}],
    )  # fmt: skip
    document = gather(views.connect(store), A)
    assert [other["record_id"] for other in document["duplicates"]] == [B]
    assert document["incident"]["size"] == 2
    assert document["transactions"][0]["state"] == "pending"


def test_a_half_message_tells_whether_the_money_moved(store: LocalStore) -> None:
    transaction = {
        "unique_key": "k", "state": "committed", "discarded": True, "checks": 15, "topic": "payments",
        "producer_group": "tx", "record_ids": [A], "real_record_id": B, "evidence": "16 half copies",
    }  # fmt: skip
    write_analysis(store, "a", [], transactions=[transaction])
    text = " ".join(shown(store, A).split())
    assert "committed: the message was delivered; the broker gave up all the same" in text
    assert "group tx, for topic payments" in text
    assert "15 counted; one reached a producer: unknown" in text
    assert f"as {B[:12]}" in text


def half_message(folder: Path, queue: str, **said: Any) -> LocalStore:
    """An archive with the letter A alone, of this queue."""
    store = LocalStore(str(folder))
    write_segment(store, "p-0", [letter(1, record_id=A, broker_kind="rocketmq", dead_letter_queue=queue)])
    write_analysis(store, "a", [verdict(A, **said)])
    return store


@pytest.mark.parametrize(
    ("queue", "cause", "advice", "what"),
    [("RMQ_SYS_TRANS_HALF_TOPIC", "transaction_pending", "hold", "stored"),
     ("TRANS_CHECK_MAX_TIME_TOPIC", "check_max_exceeded", "check_first", "given up")],
)  # fmt: skip
def test_a_half_message_has_not_died_and_its_check_can_be_resumed(
    tmp_path: Path, queue: str, cause: str, advice: str, what: str
) -> None:
    store = half_message(tmp_path, queue, cause=cause, advice=advice, transaction_state="pending")
    text = shown(store, A)
    (step,) = gather(views.connect(store), A)["next"]
    assert what in text
    assert "died" not in text
    assert step["command"].endswith("--to resume")
    assert f"the advice is {advice}; its producer is asked again" in step["why"]


@pytest.mark.parametrize("queue", ["RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "payments"])
def test_what_stands_beside_a_letter_is_evidence_and_goes_nowhere(tmp_path: Path, queue: str) -> None:
    store = half_message(tmp_path, queue, cause=None, advice="never", transaction_state="committed")
    text = shown(store, A)
    assert gather(views.connect(store), A)["next"] == []
    assert "no dead letter, but evidence" in text
    assert not {"died", "Next"} & set(text.split())


def test_a_body_is_text_in_json_when_it_is_utf8_and_base64_otherwise(store: LocalStore) -> None:
    connection = views.connect(store)
    assert with_readable_body(gather(connection, A))["body_text"] == '{"b":1,"a":[]}'
    assert with_readable_body(gather(connection, B))["body_base64"] == "//4="


DUMP = """\
00000000  41 42 00 7a 7a 7a 7a 7a  7a 7a 7a 7a 7a 7a 7a 7a  AB.zzzzzzzzzzzzz
00000010  7a 7a 7a                                          zzz"""
AMQP = "an encoded AMQP 1.0 section"


@each_row(("given", "kind", "text", "note"), [
    ((b'{"b":1,"a":["\xc3\xa9"]}',), "json", '{\n  "b": 1,\n  "a": [\n    "é"\n  ]\n}', ""),
    ((b"AB\x00" + b"z" * 16,), "hex", DUMP, ""),
    ((gzip.compress(b"hello"), "gzip"), "text", "hello", "gzip: "),
    ((b"hello", "gzip"), "text", "hello", ""),  # which only claims to be packed
    ((b"\x1f\x8bhello", "gzip"), "hex", "00000000  1f 8b", "said to be gzip, but it does not unpack"),
    ((b'{"a":"' + b"x" * 20_000 + b'"}',), "json", '{\n  "a": "xxx', "indented, the first 16.4 KB; --full"),
    ((b"hello", None, AMQP), "hex", "00000000  68", AMQP),  # which is never text even if it looks so
    ((gzip.compress(bytes(50_000_000)), "gzip"), "hex", "00000000  00", "unpacked to 50.0 MB"),
])  # fmt: skip
def test_a_body_is_shown_as_what_it_is(given: tuple[Any, ...], kind: str, text: str, note: str) -> None:
    found = preview(*given)
    assert (found.kind, found.text[: len(text)]) == (kind, text)
    assert note in found.note


@each_row(
    ("kind", "flags", "told"), [("rabbitmq", 1, True), ("rabbitmq", None, False), ("rocketmq", 1, False)]
)
def test_only_rabbitmq_flags_a_body_as_amqp_10(kind: str, flags: int | None, told: bool) -> None:
    assert (plugin_of(kind).why_no_text(flags or 0) is not None) is told


def test_a_long_body_is_cut_and_that_is_said() -> None:
    cut = preview(b"x" * 100_000)
    assert len(cut.text) == 16_384
    assert "--full" in cut.note
    assert len(preview(b"x" * 100_000, full=True).text) == 100_000


def test_what_kombu_calls_gzip_is_unpacked_as_the_zlib_that_it_is() -> None:
    body = zlib.compress(b'{"task": "orders.pay"}')
    for compression, encoding in (("application/x-gzip", "utf-8"), ("none", "zlib")):
        shown = preview(body, unpacking.packing_of(encoding, {"compression": compression}))
        assert (shown.kind, shown.text) == ("json", '{\n  "task": "orders.pay"\n}')
        assert "unpacked to" in shown.note


class Evil:
    """What would run when somebody unpickles it."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return Path.unlink, ("/tmp/never",)


@each_row("protocol", range(2, 6))
@each_row("pack", [bytes, zlib.compress])
def test_a_pickle_is_never_unpickled_and_the_texts_in_it_are_shown(
    protocol: int, pack: Callable[[bytes], bytes]
) -> None:
    body = pickle.dumps({"task": "orders.pay", "args": [b"4711", Evil()], "red": "\x1b[31m"}, protocol)
    shown = preview(pack(body), "zlib" if pack is zlib.compress else None)
    assert {"task", "orders.pay", "4711", "/tmp/never"} <= set(shown.text.split("\n"))
    assert "never unpickled" in shown.note
    assert preview(body[: len(body) // 2]).kind == "text"
    assert preview(b"\x80\x04" + b"\xff" * 9).kind in ("text", "hex")


def test_a_pickle_of_a_letter_steers_no_terminal(store: LocalStore) -> None:
    write_segment(store, "p-8", [letter(3, record_id="c" * 32, body=pickle.dumps(["\x1b[31mred", "a\nb"]))])
    text = shown(store, "c" * 12)
    assert "\\x1b[31mred" in text
    assert "\x1b" not in text


TRACE = "com.shop.StockException: z\n\tat com.shop.Orders.take(O.java:7)\n\tat com.shop.Main.main(M.java:1)"


def test_texts_of_several_lines_are_lines_among_headers_and_everywhere(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    headers = {"x-trace": f"first\n{TRACE}", "x-note": TRACE + "\n\tat a.B.c(D.java:2)\n\tat e.F.g(H.java:3)"}
    write_segment(store, "p-0", [letter(1, record_id=A, headers=headers)])
    text = shown(store, A)
    assert "\\n" not in text
    assert "\\t" not in text
    assert any(line.strip() == "at com.shop.Main.main(M.java:1)" for line in text.split("\n"))
