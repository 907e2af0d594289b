"""The way back in the connector contract as tests: one suite for every publisher (see `dlq.connectors.base`).

A test class inherits `SendingContract` and gives a `place` fixture: a connector, a target that takes letters,
and a way to see what really is there.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from typing import Any

import pytest
from support.servers import outage
from support.waiting import PATIENCE, settled

from dlq.connectors.base import (
    Outgoing,
    Presence,
    Proof,
    Publisher,
    Search,
    SendRequest,
    Sent,
    Target,
    Writing,
    keep_no_mark,
)
from dlq.core.clock import now
from dlq.core.errors import BrokerError, ConnectionLost
from dlq.core.record import Record

WINDOW = 20
_SENT_AGAIN = 2.5
"""Seconds in which a kernel tries several times to send what was lost."""
_LONG, _A_WHILE = 150.0, 0.5
"""Seconds: no publisher waits for an answer for longer; an answer comes so long after its letter at most."""
_plans = count(1)

Cut = Callable[[int], None]
"""Called with the number of letters given so far: what the broker answers from now on is lost."""


@dataclass
class SendingPlace:
    """Where a publisher is tried."""

    connector: Any
    target: Target
    letter: Callable[[int], Record]
    """A dead letter as the connector reads it."""
    arrived: Callable[[], list[str]]
    """The replay ids of all letters that lie in the target."""
    nowhere: Target | None = None
    """A target that is not there."""
    not_there: str = "returned"
    """What this broker answers to it."""
    refused: Callable[[], tuple[Record, Target]] | None = None
    """A letter that the broker does not take, and where it is sent to."""
    cutting: Callable[[], AbstractContextManager[tuple[Any, Cut]]] | None = None
    """A connector over a connection that can be cut."""
    witness: bool = False
    """Whether it takes a witness to prove anything afterwards."""
    before_proof: Callable[[], None] = lambda: None
    """Waits for what a proof rests on."""
    servers: Sequence[str] = ()
    """host:port of all that the connector connects to."""
    cannot: Mapping[str, str] = field(default_factory=dict)
    """What this connector cannot do, of nowhere, refused, buffer, cut, outage, find, absence and forget ->
    why. Without `absence` it finds what arrived, and of the rest it knows nothing."""

    def needs(self, *abilities: str) -> None:
        """Skip the test, with the reason, where the connector cannot do what it is about."""
        for ability in abilities:
            if ability in self.cannot:
                pytest.skip(f"{ability}: {self.cannot[ability]}")

    @property
    def not_found(self) -> str:
        """What is said of a letter in doubt that did not arrive."""
        return "unknown" if "absence" in self.cannot else "not_sent"

    def untold(self, letters: Sequence[Outgoing]) -> set[int]:
        """Those of which no search will ever tell: they did not arrive, and absence cannot be proven."""
        there = set(settled(self.arrived)) if "absence" in self.cannot else ids_of(letters)
        return {letter.number for letter in letters if not ids_of([letter]) <= there}

    def outgoing(self, number: int, plan: str) -> Outgoing:
        """One letter on its way to the target."""
        return Outgoing(number, self.letter(number), self.target, provenance(number, plan))

    def publisher(self, plan: str, connector: Any = None, window: int = WINDOW) -> Publisher:
        """The way in."""
        opened: Publisher = (connector or self.connector).publisher(SendRequest(plan, window, self.witness))
        return opened


def provenance(number: int, plan: str) -> dict[str, str]:
    """What a replayed letter says of its replay."""
    replay_id = sha256(f"{plan} {number}".encode()).hexdigest()[:32]
    return {"dlq_replay_id": replay_id, "dlq_replay_lap": "1", "dlq_replay_of": f"{number:032x}"}


def new_plan() -> str:
    """A name that no broker has seen."""
    return f"contract-{time.time_ns()}-{next(_plans)}"


def said(
    publisher: Publisher, letters: Iterator[Outgoing], writing: Writing = keep_no_mark
) -> tuple[list[Sent], Exception | None]:
    """All answers, and the error that ended them. What is confirmed was told of when it was written."""
    answers: list[Sent] = []
    told: set[int] = set()

    def tell(numbers: Sequence[int]) -> None:
        told.update(numbers)
        writing(numbers)

    try:
        for answer in publisher.publish(letters, tell):
            assert answer.outcome != "confirmed" or answer.number in told
            answers.append(answer)
    except BrokerError as error:
        return answers, error
    return answers, None


def until_it_ends(
    publisher: Publisher, letters: Iterator[Outgoing], writing: Writing = keep_no_mark
) -> tuple[list[Sent], Exception | None]:
    """The same of a publisher that is closed after it."""
    try:
        return said(publisher, letters, writing)
    finally:
        publisher.close()


def published(place: SendingPlace, plan: str, letters: list[Outgoing]) -> dict[int, Sent]:
    """One answer for each letter, and no error."""
    publisher = place.publisher(plan)
    answers, error = said(publisher, iter(letters))
    publisher.close()
    assert error is None
    assert sorted(answer.number for answer in answers) == sorted(letter.number for letter in letters)
    return {answer.number: answer for answer in answers}


def wait_for(place: SendingPlace, ids: set[str]) -> list[str]:
    """What arrived, once all of these are among it."""
    deadline = time.monotonic() + PATIENCE
    while not ids <= set(there := place.arrived()):
        assert time.monotonic() < deadline, f"{len(ids - set(there))} confirmed letters did not arrive"
        time.sleep(0.1)
    return there


def proven(find: Callable[[], Proof], but: Collection[int] = ()) -> Mapping[int, Presence]:
    """What a search shows once nothing is unknown, `but` these letters, of which nobody can tell: a busy
    broker may still name a client that is dead, or count late."""
    deadline = time.monotonic() + PATIENCE
    while True:
        proof = find()
        if not {n for n, found in proof.shown.items() if found == "unknown"} - {*but}:
            return proof.shown
        assert time.monotonic() < deadline, proof.doubts
        time.sleep(0.1)


def ids_of(letters: Iterable[Outgoing]) -> set[str]:
    """The replay ids."""
    return {letter.provenance["dlq_replay_id"] for letter in letters}


class Interrupted:
    """A replay whose connection was cut between writing and the answer."""

    def __init__(self, place: SendingPlace, keep_open: bool = False) -> None:
        assert place.cutting is not None
        place.before_proof()
        self.plan = new_plan()
        self.given: list[Outgoing] = []
        with place.cutting() as (connector, cut):
            self.publisher = place.publisher(self.plan, connector)
            self.before = {**self.publisher.anchor, **connector.bounds([place.target])}
            self.since = now()
            self.answers, self.error = said(self.publisher, self._letters(place, cut))
            self.after, self.error_after = (
                said(self.publisher, iter([place.outgoing(9999, self.plan)])) if keep_open else ([], None)
            )
            self.publisher.close()

    def _letters(self, place: SendingPlace, cut: Cut) -> Iterator[Outgoing]:
        for number in range(200):
            if number == 3 * WINDOW:
                cut(number)
            self.given.append(place.outgoing(number, self.plan))
            yield self.given[-1]

    def those(self, outcome: str) -> list[Outgoing]:
        """The letters with this outcome."""
        numbers = {answer.number for answer in self.answers if answer.outcome == outcome}
        return [letter for letter in self.given if letter.number in numbers]


@contextmanager
def shifted_clock(monkeypatch: pytest.MonkeyPatch, hours: int) -> Iterator[None]:
    """Our clock is so many hours ahead."""
    with monkeypatch.context() as patch:
        real, shift = time.time_ns, hours * 3_600 * 10**9
        patch.setattr(time, "time_ns", lambda: real() + shift)
        patch.setattr(time, "time", lambda: (real() + shift) / 1e9)
        yield


class Triage(Exception):
    """The process ends here."""


def harms_itself_alone(place: SendingPlace, outcome: str, **bad: Any) -> None:
    """One of five letters goes with these fields, ends so with a reason, and the others arrive."""
    plan = new_plan()
    letters = [place.outgoing(number, plan) for number in range(5)]
    letters[2] = letters[2]._replace(**bad)
    answers = published(place, plan, letters)
    assert [answers[n].outcome for n in range(5)] == ["confirmed"] * 2 + [outcome] + ["confirmed"] * 2
    assert answers[2].detail
    good = ids_of([letter for letter in letters if letter.number != 2])
    assert sorted(wait_for(place, good)) == sorted(good)


class SendingContract:
    """What every publisher guarantees."""

    def test_confirmed_letters_are_in_the_target_each_once(self, place: SendingPlace) -> None:
        plan = new_plan()
        letters = [place.outgoing(number, plan) for number in range(3 * WINDOW + 1)]
        answers = published(place, plan, letters)
        assert {answer.outcome for answer in answers.values()} == {"confirmed"}
        assert sorted(wait_for(place, ids_of(letters))) == sorted(ids_of(letters))

    def test_a_target_that_is_not_there_is_told_of_and_harms_no_other_letter(
        self, place: SendingPlace
    ) -> None:
        place.needs("nowhere")
        assert place.nowhere is not None
        harms_itself_alone(place, place.not_there, target=place.nowhere)

    def test_what_the_broker_refuses_is_refused_alone_and_says_why(self, place: SendingPlace) -> None:
        place.needs("refused")
        assert place.refused is not None
        record, target = place.refused()
        harms_itself_alone(place, "refused", record=record, target=target)

    @pytest.mark.parametrize("where", ["target", "nowhere"])
    def test_no_more_than_the_window_is_taken_ahead_of_the_answers(
        self, place: SendingPlace, where: str
    ) -> None:
        place.needs(where)
        plan, taken = new_plan(), 0

        def letters() -> Iterator[Outgoing]:
            nonlocal taken
            for number in range(10 * WINDOW):
                taken += 1
                yield place.outgoing(number, plan)._replace(target=getattr(place, where))

        publisher = place.publisher(plan)
        for answered, _ in enumerate(publisher.publish(letters())):
            assert taken - answered <= 2 * WINDOW  # one window in flight, one answered and being handed over
        publisher.close()
        assert taken == 10 * WINDOW

    def test_a_letter_that_waits_in_a_buffer_is_not_told_of(self, place: SendingPlace) -> None:
        place.needs("buffer")
        plan, told, most = new_plan(), set[int](), 0

        def letters() -> Iterator[Outgoing]:
            nonlocal most
            for taken in range(5 * WINDOW):
                most = max(most, taken - len(told))
                yield place.outgoing(taken, plan)

        publisher = place.publisher(plan)
        answers = list(publisher.publish(letters(), told.update))
        publisher.close()
        assert most > 0
        assert told == {answer.number for answer in answers} == set(range(5 * WINDOW))

    def test_a_letter_is_told_of_before_it_is_written(self, place: SendingPlace) -> None:
        plan, told = new_plan(), set[str]()

        def dying(numbers: Sequence[int]) -> None:
            ids = ids_of([place.outgoing(number, plan) for number in numbers])
            if told:
                assert not ids & set(place.arrived())
                raise Triage
            told.update(ids)

        publisher = place.publisher(plan)
        with pytest.raises(Triage):
            list(publisher.publish((place.outgoing(number, plan) for number in range(3 * WINDOW)), dying))
        publisher.close()
        later = [place.outgoing(9999, plan)]
        published(place, plan, later)
        assert set(wait_for(place, ids_of(later))) <= told | ids_of(later)

    def test_the_time_that_letters_take_to_come_is_no_silence_of_the_broker(
        self, place: SendingPlace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They come slowly where a rate is asked for, or the ledger is away."""
        plan, told, passed, real = new_plan(), set[int](), 0.0, time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: real() + passed)

        def letters() -> Iterator[Outgoing]:
            nonlocal passed
            for number in range(0, 6, 2):
                if told:
                    wait_for(place, ids_of(place.outgoing(written, plan) for written in told))
                    time.sleep(_A_WHILE)
                passed += _LONG
                yield from (place.outgoing(one, plan) for one in (number, number + 1))

        answers, error = until_it_ends(place.publisher(plan), letters(), told.update)
        assert (len(answers), {answer.outcome for answer in answers}, error) == (6, {"confirmed"}, None)

    def test_a_cut_between_write_and_answer_leaves_a_window_in_doubt_at_most(
        self, place: SendingPlace
    ) -> None:
        place.needs("cut")
        cut = Interrupted(place)
        assert isinstance(cut.error, ConnectionLost)
        assert sorted(answer.number for answer in cut.answers) == [letter.number for letter in cut.given]
        assert {answer.outcome for answer in cut.answers} == {"confirmed", "in_doubt"}
        assert 0 < len(cut.those("in_doubt")) <= WINDOW
        there = wait_for(place, ids_of(cut.those("confirmed")))
        assert len(there) == len(set(there))
        assert set(there) <= ids_of(cut.given)

    def test_after_a_cut_every_letter_in_doubt_is_found_or_proven_absent(self, place: SendingPlace) -> None:
        """Where absence cannot be proven, what arrived is found all the same."""
        place.needs("cut", "find")
        cut = Interrupted(place)
        doubtful = cut.those("in_doubt")
        search = Search(cut.plan, doubtful, cut.since, cut.before)
        found = proven(lambda: place.connector.find(search), place.untold(doubtful))
        assert set(found.values()) <= {"sent", place.not_found}
        there = set(
            wait_for(place, ids_of([letter for letter in doubtful if found[letter.number] == "sent"]))
        )
        assert {
            letter.number: "sent" if letter.provenance["dlq_replay_id"] in there else place.not_found
            for letter in doubtful
        } == found

    @pytest.mark.parametrize("hours", [-30, 30])
    def test_a_clock_of_ours_that_is_wrong_while_letters_are_sent_changes_nothing(
        self, place: SendingPlace, hours: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place.needs("find")
        place.before_proof()
        plan = new_plan()
        letters = [place.outgoing(number, plan) for number in range(5)]
        with shifted_clock(monkeypatch, hours):
            publisher = place.publisher(plan)
            before = {**publisher.anchor, **place.connector.bounds([place.target])}
            since = now()
            assert [answer.outcome for answer in said(publisher, iter(letters[:3]))[0]] == ["confirmed"] * 3
            publisher.close()
        shown = proven(
            lambda: place.connector.find(Search(plan, letters, since, before)), place.untold(letters)
        )
        assert shown == dict.fromkeys(range(3), "sent") | dict.fromkeys((3, 4), place.not_found)

    def test_what_the_kernel_holds_when_sending_ends_in_an_outage_never_arrives(
        self, place: SendingPlace
    ) -> None:
        place.needs("outage")
        if why := outage.why_missing():
            pytest.skip(why)
        plan, told = new_plan(), set[int]()
        letters = [place.outgoing(number, plan) for number in range(500)]
        with outage.Outage(place.servers) as network:

            def writing(numbers: Sequence[int]) -> None:
                if len(told) < 100 <= len(told | {*numbers}):
                    network.begin()
                told.update(numbers)

            def given() -> Iterator[Outgoing]:
                for letter in letters:
                    if letter.number in (50, 90):
                        time.sleep(0.3)  # what was taken is written, and the connection is there, by then
                    if len(told) >= 100:
                        break
                    time.sleep(0.02 if letter.number > 400 else 0)  # or not yet: it takes its time
                    yield letter
                time.sleep(0.3)  # for a library that writes by itself
                raise Triage

            def sending() -> None:
                publisher = place.publisher(plan, window=1000)
                with pytest.raises((Triage, ConnectionLost)):  # who is slow waits for answers meanwhile
                    list(publisher.publish(given(), writing))
                publisher.close()

            network.inside(sending)
            arrived = settled(lambda: set(place.arrived()))  # what the broker had got by then
            network.end()
            time.sleep(_SENT_AGAIN)
        assert set(wait_for(place, arrived)) == arrived
        assert len(told) > len(arrived)
        rest = [letter for letter in letters if not ids_of([letter]) <= arrived]
        published(place, plan, rest)
        assert sorted(wait_for(place, ids_of(letters))) == sorted(ids_of(letters))

    def test_a_publisher_that_lost_its_connection_confirms_nothing_untrue(self, place: SendingPlace) -> None:
        place.needs("cut")
        cut = Interrupted(place, keep_open=True)
        assert cut.after or cut.error_after
        assert {answer.number for answer in cut.after} <= {9999}
        if any(answer.outcome == "confirmed" for answer in cut.after):
            wait_for(place, {provenance(9999, cut.plan)["dlq_replay_id"]})

    def test_what_a_plan_left_on_the_broker_is_gone_when_it_is_forgotten(self, place: SendingPlace) -> None:
        place.needs("find", "forget")
        place.before_proof()
        plan, since = new_plan(), now()
        letters = [place.outgoing(number, plan) for number in range(WINDOW)]
        published(place, plan, letters)
        assert set(proven(lambda: place.connector.find(Search(plan, letters, since))).values()) == {"sent"}
        for _ in range(2):  # the second time nothing is there, which is no error
            place.connector.forget(SendRequest(plan, witness=place.witness))
        assert "sent" not in place.connector.find(Search(plan, letters, since)).shown.values()
        assert sorted(place.arrived()) == sorted(ids_of(letters))

    def test_closing_a_publisher_twice_does_no_harm(self, place: SendingPlace) -> None:
        publisher = place.publisher(new_plan())
        publisher.close()
        publisher.close()
