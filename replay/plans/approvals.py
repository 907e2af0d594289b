"""Consent to a plan by a second person, where `[replay] approval = true` asks for it.

It is an event of the ledger, bound to the plan's digest, and it ends. It guards against haste, not against
somebody who says to be another.
"""

from collections.abc import Iterable

from dlq.core.errors import UsageError
from dlq.core.failures import Event, make_event
from dlq.core.settings import Replay
from dlq.core.values.units import seconds
from dlq.replay.actor import is_agent, person_of, user_of
from dlq.replay.plans.planfile import Header


def approval(header: Header, actor: str, reason: str, now: int, settings: Replay) -> Event:
    """Return the consent of `actor`. Raises UsageError when they made the plan, or nobody knows who did."""
    if header.actor is None:
        raise UsageError(
            f"plan {header.plan} does not record who made it: make it again with `dlq replay plan`"
        )
    if _is_maker(header, actor, settings):
        raise UsageError(f"{header.actor} made plan {header.plan}: another person has to approve it; ask one")
    return make_event(now, actor, header.plan, "approve", header.digest, reason)


def is_needed(header: Header, settings: Replay) -> bool:
    """Return whether somebody else has to consent before this plan is applied: to an agent's always."""
    return settings.approval or is_agent(header.actor or "")


def _is_maker(header: Header, actor: str, settings: Replay) -> bool:
    """Return whether `actor` made the plan; so did, where two have to agree, whom an agent made it for."""
    maker = header.actor or ""
    return person_of(actor) in {person_of(maker), person_of(user_of(maker) if settings.approval else maker)}


def check(header: Header, events: Iterable[Event], settings: Replay, now: int) -> None:
    """Raise UsageError unless the plan, as it is, has the consent of another person that still counts, where
    the configuration or an agent's plan asks for it."""
    if not is_needed(header, settings):
        return
    given = [
        event
        for event in events
        if (event.action, event.subject, event.value) == ("approve", header.plan, header.digest)
        and header.actor is not None
        and not _is_maker(header, event.actor, settings)
    ]
    who = "another person" if settings.approval else "a person"
    ask = f"{who} has to run `dlq replay approve {header.plan}`"
    if not given:
        why = "[replay] approval wants it" if settings.approval else "an agent made it"
        raise UsageError(f"plan {header.plan} is not approved, and {why}: {ask}")
    if now - max(event.at for event in given) > seconds(settings.approval_time) * 1_000_000:
        raise UsageError(
            f"the approval of plan {header.plan} is older than {settings.approval_time} "
            f"([replay] approval_time): {ask} again"
        )
