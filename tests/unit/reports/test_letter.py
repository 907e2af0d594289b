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
from dlq.archive.store import LocalStore
from dlq.core.brokers import plugin_of
from dlq.core.errors import UsageError
from dlq.core.record import Death
from dlq.reports import letter as letters
from dlq.reports import letter_text, unpacking
from dlq.reports.body import preview
from dlq.reports.letter import with_readable_body

A = "aaaaaaaa" + "1" * 24
B = "aaaaaaaa" + "2" * 24


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(str(tmp_path))
    deaths = (
        Death("rejected", "orders", "shop", ("order.created",), 1, 2 * MINUTE),
        Death("expired", "orders.wait", "", ("orders.wait",), 3, MINUTE),
    )
    hostile = {"\x1b]0;x\x07": "\x1b[31mred\u202e"}
    first = letter(
        1, record_id=A, deaths=deaths, headers=hostile, body=b'{"b":1,"a":[]}', failure_text="Boom\x1b[2J"
    )
    write_segment(store, "p-0", [first, letter(2, record_id=B, body=b"\xff\xfe")])
    return store


def gather(connection: Any, prefix: str) -> dict[str, Any]:
    record_id = short_ids.record_id(connection, prefix)
    return letters.gather(connection, record_id, views.on_page(views.page_of(connection, record_id)))


def shown(store: LocalStore, prefix: str) -> str:
    document = gather(views.connect(store), prefix)
    console = Console(file=io.StringIO(), width=80)
    letter_text.render(console, document, preview(base64.b64decode(document["body_base64"])))
    return str(console.file.getvalue())  # type: ignore[attr-defined]  # the StringIO of the line above


def verdict(record_id: str, **values: Any) -> dict[str, Any]:
    known = {"record_id": record_id, "cause": "application_error", "advice": "replay", "origin": "orders"}
    return {**known, "advice_reason": "mended", **values}


def test_a_unique_prefix_of_eight_digits_addresses_a_letter(store: LocalStore) -> None:
    assert gather(views.connect(store), A[:9])["record_id"] == A


def test_a_letter_that_lies_under_two_sources_is_one_letter(store: LocalStore) -> None:
    write_segment(store, "p-9", [letter(1, record_id=A, source="again")])
    assert gather(views.connect(store), A)["record_id"] == A


@pytest.mark.parametrize(
    ("prefix", "told"),
    [("aaaaaaaa", "ambiguous"), ("bbbbbbbb", "no letter"), ("aaaa", "8 or more"), ("' OR 1=1", "8 or more")],
)
def test_any_other_prefix_is_told_in_one_line(store: LocalStore, prefix: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        gather(views.connect(store), prefix)


def test_deaths_are_told_from_the_first_to_the_last_with_their_counts(store: LocalStore) -> None:
    text = shown(store, A)

    assert text.index("expired x3") < text.index("rejected ")
    assert "in orders.wait" in text


def test_the_cause_is_told_in_words_and_the_advice_with_its_reason(store: LocalStore) -> None:
    write_analysis(store, "a", [verdict(A)])

    text = shown(store, A)

    assert "application_error: an application or framework parked it with an exception" in text
    assert "Advice: replay: mended" in text
    assert f"dlq replay plan {A[:12]}" in text


def test_nothing_hostile_reaches_the_terminal(store: LocalStore) -> None:
    text = shown(store, A)

    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert "\\x1b[31mred\\u202e" in text


def test_a_letter_whose_replay_is_in_doubt_is_not_offered_for_replay(store: LocalStore) -> None:
    write_analysis(store, "a", [verdict(A)])
    ledger = pa.Table.from_pylist(
        [{"record_id": A, "plan": "p7", "state": "in_doubt", "updated_at": 1}], views.REPLAYS
    )

    steps = gather(views.connect(store, ledger), A)["next"]

    assert [step["command"] for step in steps] == ["dlq replay reconcile p7"]


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


@pytest.mark.parametrize(
    ("queue", "cause", "advice", "what"),
    [
        ("RMQ_SYS_TRANS_HALF_TOPIC", "transaction_pending", "hold", "stored"),
        ("TRANS_CHECK_MAX_TIME_TOPIC", "check_max_exceeded", "check_first", "given up"),
    ],
)
def test_a_half_message_has_not_died_and_its_check_can_be_resumed(
    tmp_path: Path, queue: str, cause: str, advice: str, what: str
) -> None:
    store = LocalStore(str(tmp_path))
    write_segment(store, "p-0", [letter(1, record_id=A, broker_kind="rocketmq", dead_letter_queue=queue)])
    write_analysis(store, "a", [verdict(A, cause=cause, advice=advice, transaction_state="pending")])

    text = shown(store, A)
    (step,) = gather(views.connect(store), A)["next"]

    assert what in text
    assert "died" not in text
    assert step["command"].endswith("--to resume")
    assert f"the advice is {advice}; its producer is asked again" in step["why"]


@pytest.mark.parametrize("queue", ["RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "payments"])
def test_what_stands_beside_a_letter_is_evidence_and_goes_nowhere(tmp_path: Path, queue: str) -> None:
    store = LocalStore(str(tmp_path))
    write_segment(store, "p-0", [letter(1, record_id=A, broker_kind="rocketmq", dead_letter_queue=queue)])
    write_analysis(store, "a", [verdict(A, cause=None, advice="never", transaction_state="committed")])

    text = shown(store, A)

    assert gather(views.connect(store), A)["next"] == []
    assert "no dead letter, but evidence" in text
    assert not {"died", "Next"} & set(text.split())


def test_a_body_is_text_in_json_when_it_is_utf8_and_base64_otherwise(store: LocalStore) -> None:
    connection = views.connect(store)

    assert with_readable_body(gather(connection, A))["body_text"] == '{"b":1,"a":[]}'
    assert with_readable_body(gather(connection, B))["body_base64"] == "//4="


def test_a_json_body_is_indented_in_its_own_order() -> None:
    assert preview(b'{"b":1,"a":["\xc3\xa9"]}')[:2] == ("json", '{\n  "b": 1,\n  "a": [\n    "é"\n  ]\n}')


def test_bytes_that_are_no_text_become_a_hex_dump() -> None:
    kind, text, _note = preview(b"AB\x00" + b"z" * 16)

    assert kind == "hex"
    assert text.splitlines() == [
        "00000000  41 42 00 7a 7a 7a 7a 7a  7a 7a 7a 7a 7a 7a 7a 7a  AB.zzzzzzzzzzzzz",
        "00000010  7a 7a 7a                                          zzz",
    ]


def test_a_compressed_body_is_shown_unpacked_and_that_is_said() -> None:
    kind, text, note = preview(gzip.compress(b"hello"), "gzip")

    assert (kind, text) == ("text", "hello")
    assert note.startswith("gzip: ")


def test_a_body_that_only_claims_to_be_compressed_is_shown_as_it_is() -> None:
    assert preview(b"hello", "gzip")[:2] == ("text", "hello")


def test_an_amqp_10_body_is_never_text_even_if_it_looks_so() -> None:
    kind, _text, note = preview(b"hello", None, "an encoded AMQP 1.0 section")

    assert (kind, note) == ("hex", "an encoded AMQP 1.0 section")


@pytest.mark.parametrize(
    ("kind", "flags", "told"), [("rabbitmq", 1, True), ("rabbitmq", None, False), ("rocketmq", 1, False)]
)
def test_only_rabbitmq_flags_a_body_as_amqp_10(kind: str, flags: int | None, told: bool) -> None:
    assert (plugin_of(kind).why_no_text(flags or 0) is not None) is told


def test_a_bomb_unpacks_only_to_a_bound() -> None:
    assert "unpacked to 50.0 MB" in preview(gzip.compress(bytes(50_000_000)), "gzip").note


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
