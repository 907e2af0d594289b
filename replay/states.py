"""The states of a replay, and which may follow which.

    planned -> sending -> confirmed | returned | refused | in_doubt
    in_doubt -> confirmed | planned | held      (reconcile)

`sending` is written before anything is sent. What ends in `in_doubt` is never sent again by itself.
"""

from collections.abc import Mapping
from typing import Literal

State = Literal["planned", "sending", "confirmed", "returned", "refused", "in_doubt", "held", "dismissed"]
STATES: tuple[State, ...] = ("planned", "sending", "confirmed", "returned", "refused", "in_doubt", "held")
"""Of a replay. `dismissed` is of a letter that needs none (`dlq.replay.dismissals`)."""

BY_OWNER: Mapping[State, tuple[State, ...]] = {
    "confirmed": ("sending", "in_doubt", "planned", "held"),
    "returned": ("sending", "in_doubt"),
    "refused": ("sending", "in_doubt"),
    "in_doubt": ("sending",),
    "planned": ("sending", "in_doubt"),
}
"""State -> the states from which the sender itself may go there. A late confirm proves more than
whatever was concluded in the meantime; `planned` is a claim that was given back unsent, which its sender
knows also where the lease had ended meanwhile."""

BY_RECONCILE: Mapping[State, tuple[State, ...]] = {
    "confirmed": ("in_doubt", "held", "planned"),
    "planned": ("in_doubt", "held"),
    "held": ("in_doubt",),
    "in_doubt": ("sending",),
}
"""State -> the states from which proof, an operator's decision or the end of a lease may go there. What was
called unsent may be proven sent later."""

SENT: tuple[State, ...] = ("confirmed", "sending", "in_doubt", "held")
"""It was sent, or may have been."""
MAY_SEND: tuple[State, ...] = ("planned",)
"""Known to the ledger, and yet any plan may send it."""
MAY_SEND_AGAIN: tuple[State, ...] = ("returned", "refused")
"""The broker did not take it: a plan that was made since may try again, no other does. Who made that knew of
it, and what its target refused may be a dead letter of its own now."""
