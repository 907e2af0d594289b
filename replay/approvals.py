"""Consent to a plan by a second person, where `[replay] approval = true` asks for it.

It is an event of the ledger, bound to the plan's digest, and it ends. It guards against haste, not against
somebody who says to be another.
"""

from collections.abc import Iterable

from dlq.core.errors import UsageError
from dlq.core.failures import Event, said
from dlq.core.settings import Replay
from dlq.core.units import seconds
from dlq.replay.planfile import Header


def approval(header: Header, actor: str, reason: str, now: int) -> Event:
    """The consent of `actor`. Raises UsageError when they made the plan, or nobody knows who did."""
    if header.actor is None:
        raise UsageError(f"plan {header.plan} does not say who made it: make it again with `dlq replay plan`")
    if _person(actor) == _person(header.actor):
        raise UsageError(f"{header.actor} made plan {header.plan}: another person has to approve it")
    return said(now, actor, header.plan, "approve", header.digest, reason)


def check(header: Header, events: Iterable[Event], settings: Replay, now: int) -> None:
    """Raises UsageError unless the plan, as it is, has the consent of another person that still counts."""
    if not settings.approval:
        return
    given = [
        event
        for event in events
        if (event.action, event.subject, event.value) == ("approve", header.plan, header.digest)
        and header.actor is not None
        and _person(event.actor) != _person(header.actor)
    ]
    ask = f"another person has to run `dlq replay approve {header.plan}`"
    if not given:
        raise UsageError(f"plan {header.plan} is not approved, and [replay] approval wants it: {ask}")
    if now - max(event.at for event in given) > seconds(settings.approval_time) * 1_000_000:
        raise UsageError(
            f"the approval of plan {header.plan} is older than {settings.approval_time} "
            f"([replay] approval_time): {ask} again"
        )


def _person(actor: str) -> str:
    """A name is one person's, on whatever host."""
    return actor.partition("@")[0].strip().casefold()
