"""Which letter that OpenWire showed is the one that comes by STOMP."""

from typing import Any

from support.rows import each_row

from dlq.connectors.activemq.openwire.codec import commands
from dlq.connectors.activemq.openwire.codec.messages import MAP, Dispatch, Message, Structure
from dlq.connectors.activemq.openwire.codec.messages import PRODUCER_ID as PRODUCER
from dlq.connectors.activemq.read.browse import Browsed
from dlq.connectors.activemq.stomp.codec import Frame
from dlq.core.record import NOTHING

NODE = "3e6ea720-e7fc-11f1-a23a-828394a878bd"
NO_ENTRIES = b"\0\0\0\0"
ONE_ENTRY = b"\0\0\0\1\0\1k\0"
UNKNOWN = "not seen by OpenWire"


def shown(
    number: int, content: bytes = NO_ENTRIES, kind: int = MAP, sent_at: int = 5, **changes: Any
) -> Dispatch:
    """A letter as OpenWire shows it, with the id that Artemis makes of the number that it has."""
    producer = Structure(PRODUCER, (f"ID:{NODE}:-1", number // (2**31 - 1), -1))
    name = Structure(110, (None, producer, number % (2**31 - 1), 0))
    told: Any = dict.fromkeys(Message._fields)
    told |= {"properties": commands.properties({"amount": "7"}, {"amount": "int"}), "compressed": False}
    told |= {"redelivery_counter": 0, "content": content, "timestamp": sent_at, "message_id": name}
    message = Message(**{**told, **changes})
    return Dispatch(3, kind, b"name", message, b"", name)


def frame(number: int, *headers: str, sent_at: int = 5) -> Frame:
    """The same by STOMP, as the 576th consumer gets it."""
    head = "\n".join([f"message-id:576,{number}", *headers, f"timestamp:{sent_at}"])
    return Frame(b"MESSAGE", head.encode(), b"garbage")


def browsed(*letters: Dispatch) -> Browsed:
    found = Browsed(NODE)
    for letter in letters:
        found.keep(letter)
    return found


def why_lossy(found: Browsed, letter: Frame) -> str | None:
    return found.why_lossy(letter, lambda _frame: UNKNOWN)


@each_row("number", [1, 2**31 - 2, 2**31 - 1, 2**31, 2**62])
def test_a_letter_is_found_by_the_id_that_the_broker_made(number: int) -> None:
    found = browsed(shown(number, ONE_ENTRY))
    assert why_lossy(found, frame(number)) is None
    completed = found.complete(frame(number))
    assert completed.body == ONE_ENTRY
    assert completed.properties == {"class": "map", "type of amount": "int"}
    assert completed.head == frame(number).head


def test_a_letter_of_an_openwire_client_is_found_by_its_own_id() -> None:
    name = Structure(110, (None, Structure(PRODUCER, ("ID:host-1-2-3:1", 1, 1)), 7, 0))
    found = browsed(shown(1, ONE_ENTRY)._replace(message_id=name))
    assert why_lossy(found, frame(83, "__HDR_MESSAGE_ID:ID\\chost-1-2-3\\c1\\c1\\c1\\c7")) is None
    assert why_lossy(found, frame(1)) == UNKNOWN


def test_a_letter_that_came_later_is_classified_by_what_stomp_shows() -> None:
    found = browsed(shown(1))
    for other in (frame(2), frame(1, sent_at=6)):
        assert why_lossy(found, other) == UNKNOWN
        assert found.complete(other) == other._replace(properties=NOTHING)


def test_letters_that_share_an_id_or_are_not_shown_whole_are_known_only_where_they_are_equal() -> None:
    one, other = shown(1), shown(1, ONE_ENTRY)
    damaged, unreadable = shown(1, compressed=True, content=b"no zlib"), shown(1)._replace(message=None)
    assert why_lossy(browsed(one, one), frame(1)) is None
    for letters in ([one, other], [one, other, other], [damaged, unreadable]):
        assert why_lossy(browsed(*letters), frame(1)) == UNKNOWN
