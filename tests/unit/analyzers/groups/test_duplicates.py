"""What letters are to each other, by what they share."""

from typing import Any

from support.rows import each_row

from dlq.analyzers.groups.duplicates import Duplicate, Shared, of_letter, of_rocketmq_letter

FIRST, SECOND = "r1", "r2"
KEY, ID, BODY = "a", "b", "c"


def shared(kind: str, group: str = ID, body: str | None = "x", **known: Any) -> Shared:
    """A key that two letters have; the older one is FIRST."""
    return Shared(
        f"{kind} {group}", **{"size": 2, "first_record_id": FIRST, "first_body_sha256": body, **known}
    )


BY_ID, BY_KEY, BY_BODY = shared("same_message_id"), shared("same_key", KEY), shared("same_body", BODY)
ELSEWHERE = shared("several_groups", several_places=True)

# What is said, of whom, what it shares, what its producer is; and: group, kind, first, repeats the id, exact.
LETTERS: list[tuple[str, str, list[Shared], bool, Duplicate]] = [
    ("alone", FIRST, [], False, Duplicate()),
    ("alone with its keys", FIRST, [BY_ID._replace(size=1)], False, Duplicate()),
    ("the first of an id", FIRST, [BY_ID], False, Duplicate("b", "same_message_id", True, False, False)),
    ("the second of an id", SECOND, [BY_ID], False, Duplicate("b", "same_message_id", False, True, True)),
    ("another body", SECOND, [shared("same_message_id", body="y")], False, Duplicate("b", "same_message_id", False, True, False)),
    ("an unknown body", SECOND, [shared("same_message_id", body=None)], False, Duplicate("b", "same_message_id", False, True, None)),
    ("the first, of no body", FIRST, [shared("same_message_id", body=None)], False, Duplicate("b", "same_message_id", True, False, False)),
    ("the key names the group, the id the kind", SECOND, [BY_KEY, BY_ID, BY_BODY], False, Duplicate("a", "same_message_id", False, True, True)),
    ("a key", SECOND, [BY_KEY], False, Duplicate("a", "same_key", False, False, False)),
    ("a body", SECOND, [BY_BODY], False, Duplicate("c", "same_body", False, False, False)),
    ("a key and a body", SECOND, [BY_BODY, BY_KEY], False, Duplicate("a", "same_key", False, False, False)),
    ("dead at several places: a note, no group", SECOND, [ELSEWHERE], False, Duplicate(None, "several_groups", None, False, False)),
    ("dead at one place in two queues", SECOND, [ELSEWHERE._replace(several_places=False)], False, Duplicate()),
    ("a coordinator's resend", SECOND, [BY_ID], True, Duplicate("b", "producer_resend", False, True, True)),
    ("a coordinator's second message", SECOND, [BY_KEY], True, Duplicate("a", "business_resend", False, False, False)),
    ("a coordinated body", SECOND, [BY_BODY], True, Duplicate("c", "same_body", False, False, False)),
]  # fmt: skip


@each_row(("record_id", "keys", "coordinated", "said"), [case[1:] for case in LETTERS], ids=[c[0] for c in LETTERS])  # fmt: skip
def test_the_strongest_sign_says_what_a_letter_is(
    record_id: str, keys: list[Shared], coordinated: bool, said: Duplicate
) -> None:
    assert of_letter(record_id, "x", coordinated, keys) == said


def test_a_body_that_is_not_known_is_no_exact_copy() -> None:
    assert of_letter(SECOND, None, False, [BY_ID]).exact_copy is None


def by_id(**known: Any) -> Shared:
    return shared("by_id", **{"any_fallback": False, **known})


BUSINESS = shared("by_business", KEY)
GROUPS = shared("of_message", several_places=True)
COMMITTED = {"several_origins": True, "all_committed": True, "one_birth": True}

ROCKETMQ: list[tuple[str, list[Shared], bool | None, str | None]] = [
    ("single", [by_id(size=1), BUSINESS._replace(size=1), GROUPS._replace(several_places=False)], False, None),
    ("without any key", [], None, None),
    ("twice", [by_id()], False, "redelivery_or_rebalance"),
    ("sent back by the client itself", [by_id(several_origins=True, any_fallback=True)], False, "redelivery_or_rebalance"),
    ("nothing tells who sent it back", [by_id(several_origins=True, any_fallback=None)], False, "redelivery_or_rebalance"),
    ("resent", [by_id(several_origins=True)], False, "producer_resend"),
    ("resent, born at one time", [by_id(several_origins=True, one_birth=True)], False, "producer_resend"),
    ("resent in transactions, each born anew", [by_id(**{**COMMITTED, "one_birth": False})], False, "producer_resend"),
    ("one half message committed twice", [by_id(**COMMITTED)], False, "double_commit"),
    ("committed twice, whoever sent it back", [by_id(**COMMITTED, any_fallback=True)], False, "double_commit"),
    ("one of them not committed", [by_id(**{**COMMITTED, "all_committed": False})], False, "producer_resend"),
    ("the same work under a new id", [BUSINESS], False, "business_resend"),
    ("a new id is weaker than the same", [by_id(), BUSINESS], False, "redelivery_or_rebalance"),
    ("dead for two groups", [by_id(size=1), GROUPS], False, "several_groups"),
    ("dead for two groups, and twice for one", [by_id(), GROUPS], False, "redelivery_or_rebalance"),
    ("a replay that came back", [by_id(**COMMITTED)], True, "replay_returned"),
    ("it was replayed and died again", [by_id(originals=1), BUSINESS._replace(originals=1)], False, None),
    ("delivered twice, and replayed", [by_id(size=3, originals=2)], False, "redelivery_or_rebalance"),
    ("a replay alone", [GROUPS], True, "several_groups"),
    ("nothing tells whether it is a replay", [by_id()], None, "redelivery_or_rebalance"),
]  # fmt: skip


@each_row(("keys", "replayed", "kind"), [case[1:] for case in ROCKETMQ], ids=[case[0] for case in ROCKETMQ])
def test_rocketmqs_copies_are_told_apart(keys: list[Shared], replayed: bool | None, kind: str | None) -> None:
    found = of_rocketmq_letter(SECOND, "x", replayed, keys)
    assert (found and found.duplicate_kind) == kind


# Who, what it shares, whether it is a replay; and: group, first, repeats the id, exact.
SHAPES: list[tuple[str, list[Shared], bool, tuple[str | None, bool | None, bool, bool | None]]] = [
    (FIRST, [by_id()], False, ("b", True, False, False)),
    (SECOND, [by_id()], False, ("b", False, True, True)),
    (SECOND, [by_id(body="y")], False, ("b", False, True, False)),
    (SECOND, [by_id(body=None)], False, ("b", False, True, None)),
    (SECOND, [by_id()], True, ("b", False, False, False)),
    (SECOND, [BUSINESS], False, ("a", False, False, False)),
    (SECOND, [by_id(first_record_id=SECOND), BUSINESS], False, ("a", True, False, False)),
    (SECOND, [GROUPS], False, (None, None, False, False)),
]


@each_row(("record_id", "keys", "replayed", "said"), SHAPES)
def test_an_older_letter_of_its_id_makes_it_a_copy_unless_it_was_replayed(
    record_id: str, keys: list[Shared], replayed: bool, said: tuple[Any, ...]
) -> None:
    found = of_rocketmq_letter(record_id, "x", replayed, keys)
    assert found is not None
    assert (found.duplicate_group, *found[2:]) == said
