"""Messages as RocketMQ's client prints them; the first is one of a public log of 4.x."""

from support.rows import each_row

from dlq.connectors.jsonl.console_formats import Printed
from dlq.connectors.jsonl.format import check_document, fit, record_of
from dlq.connectors.rocketmq.console.formats import messages
from dlq.core.keys import key_reader

HEAD = (
    "MessageExt [queueId=0, storeSize=180, queueOffset=113, sysFlag=0, bornTimestamp=1669729922426, "
    "bornHost=/172.27.80.1:61263, storeTimestamp=1669729922426, storeHost=/172.27.80.1:10911, "
    "msgId=AC1B500100002A9F0000000000013E16, commitLogOffset=81430, bodyCRC=1655802458, reconsumeTimes=0, "
    "preparedTransactionOffset=0, toString()="
)
REAL = (
    HEAD + "Message{topic='TopicTest', flag=0, properties={MIN_OFFSET=0, MAX_OFFSET=250, "
    "CONSUME_START_TIME=1669730050849, UNIQ_KEY=76FBC10A4DDC60E53B9394E3457A01C5, WAIT=true, TAGS=TagA}, "
    "body=[72, 101, 108, 108, 111, 32, 82, 111, 99, 107, 101, 116, 77, 81, 32, 52, 53, 51], "
    "transactionId='null'}]"
)
OLD = (
    HEAD + "Message [topic=PushTopic, flag=0, properties={MIN_OFFSET=0, MAX_OFFSET=2, KEYS=3, WAIT=true, "
    "TAGS=push}, body=14]]"
)


def printed(properties: str, body: str = "[72]") -> str:
    message = f"Message{{topic='%DLQ%orders', flag=0, properties={properties}, body={body}"
    return f"{HEAD}{message}, transactionId='null'}}]"


BY_ID = "OffsetID:            0A\nTopic:               T\nMessage Body Path:   /tmp/rocketmq/msgbodys/0A\n\n"


def why(found: Printed) -> str:
    (_line, reason), *others = found.unread
    assert not others
    assert not found.letters
    return reason


def test_bytes_below_zero_are_those_above_127_and_a_packed_body_was_printed_unpacked() -> None:
    ((_, letter),) = messages(printed("{}", "[-28, -67, -96]").replace("sysFlag=0", "sysFlag=257")).letters
    assert (letter["body_text"], letter["headers"]["sysFlag"]) == ("你", "0")


READ = {
    f"a log line\n[{REAL}, {REAL}]\n\n{REAL}\n": ([2, 2, 4], [], ""),
    f"MSGID: A {OLD} BODY: fourteen bytes\n": ([1], [], ""),
    OLD: ([], [1], "only the length of its body, 14 bytes"),
    f"MSGID: A {OLD} BODY: NOT PRINT BODY": ([], [1], "only the length"),
    f"MSGID: A {OLD} BODY: a body\nof two l.\nMSGID: B {OLD} BODY: too short\n": ([], [1, 3], ""),
    BY_ID * 2: ([], [1, 5], "let printMsg print the message"),
    printed(f"{{ERROR=failed on {REAL}, A=1}}") + f"\n{REAL}": (
        [2], [1], "what follows in its line is not read",
    ),
}  # fmt: skip
"""Print -> the lines of its letters, of what is none, and why that is none."""


@each_row(("text", "expected"), READ.items())
def test_what_is_whole_is_read_and_the_rest_is_said_with_its_line(
    text: str, expected: tuple[list[int], list[int], str]
) -> None:
    letters, unread, why = expected
    found = messages(text)
    assert ([line for line, _ in found.letters], [line for line, _ in found.unread]) == (letters, unread)
    assert not why or why in found.unread[0][1]


@each_row(("text", "reason"), [
    (REAL[:200], "cut"),
    (REAL[:500], "no end"),
    (REAL[:-30], "no end"),
    (printed("{A=1, B=2}", "[1, 2, ...]"), "no end"),
    (printed("{A=1, B=2}", "[128]"), "no array of bytes"),
    (printed("{A=1, B=2}", "[1,, 2]"), "no array of bytes"),
    (printed("{A=1, B=2}", "[" + "9" * 5000 + "]"), "no array of bytes"),
    (printed("{A=1, A=2}"), "twice"),
    (printed("{A={x=1, y=2}, B=3}"), "within a bracket"),
    (printed("{A=one, two three=3}"), "two meanings at 'two three=3'"),
    (printed("{A=1,\n B=2}"), "wrapped"),
    (printed("{no equals}"), "two meanings"),
    (printed("{A=x}, body=[1], transactionId='null'}], B=2}"), "two ends"),
    (printed("{A=1, B=2"), "cut"),
])  # fmt: skip
def test_what_is_cut_or_ambiguous_is_said_and_not_guessed(text: str, reason: str) -> None:
    assert reason in why(messages(text))


def test_values_may_hold_commas_json_and_control_characters() -> None:
    text = printed('{NOTE=one, two, JSON={"a": 1, "b": [2]}, BELL=\x07, X=a=b==}')
    ((_, letter),) = messages(text).letters
    assert letter["properties"] == {
        "NOTE": "one, two",
        "JSON": '{"a": 1, "b": [2]}',
        "BELL": "\x07",
        "X": "a=b==",
    }


def test_a_number_beyond_its_column_stays_in_the_headers_alone() -> None:
    ((_, letter),) = messages(REAL.replace("reconsumeTimes=0", "reconsumeTimes=99999999999999999999")).letters
    record = record_of(check_document(fit(letter)), "import", "import", "1.1", key_reader("message_id"))
    assert record.attempts is None
    assert record.headers["reconsumeTimes"] == "99999999999999999999"
