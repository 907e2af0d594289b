"""How long the program waits, for what and why: one table, and the loop that waits.

In seconds. Whoever waits reads a row when the wait begins (`patience.SETTLED`); so who cannot wait as long, a
test, sets that row.
"""

import time
from collections.abc import Iterator

BLINK = 0.01
"""Between two questions about what changes at once: an acknowledgement, a count behind a commit."""
PAUSE = 0.1
"""Between two questions about what changes soon: a place that was made or deleted, a leader, a late count."""
FETCH = 0.2
"""A read waits so long for more than there is; heartbeats and stops have their turn between two reads."""
RECHECK = 0.5
"""Between two looks at what others do: a lock of another run, consumers, a request to stop."""
YIELD = 1.0
"""What trickles in is handed on so often: the caller archives it, and looks at its own time."""
RECONNECT = 1.0
"""Before a broker that was lost is connected to again."""
DEAD_LETTERED = 1.0
"""A rejected letter is that long on its way to its dead-letter place, at most."""
FRESH = 1.0
"""So old may be what is shown, or what a command printed: many questions of a moment are asked once."""
GIVEN_BACK = 2.0
"""A broker has taken back what a reader held that has just gone, and a queue has elected its leader."""
IDLE = 2.0
"""A queue of unknown size that gives nothing for so long is empty."""
COUNTED = 3.0
"""A broker has counted by then what was committed or acknowledged: one that pages does it late."""
SETTLED = 3.0
"""A request whose connection has ended is stored, or dropped, by then."""
REPLY = 3.0
"""A broker that has taken a question, or owes a letter, and can answer at all has answered by then."""
STALLED = 6.0
"""What is there, and does not come for so long, is held by somebody else."""
SHORTLY = 10.0
"""What answers shortly or not at all: a store's connection, a request's head, what is nice to know."""
CAUGHT_UP = 10.0
"""What a broker does behind its answers is done by then: queues are built, what others held is back."""
GONE = 15.0
"""A dead client's connection has left the broker's list, unless an alarm holds up what it has sent."""
QUESTION = 20.0
"""A question of a page to the archive is ended then: its condition may be anybody's."""
RESTART = 30.0
"""A broker is away for so long while another node takes over, or it is started again; one that did not answer
is not asked for the next thing before."""
ENDED = 30.0
"""What others do for us is ended then: a command that prints a password, an agent's statement, a collector's
answer, a client that takes a piece of an answer."""
ANSWER = 60.0
"""For an answer of a server of others: a ledger's, an object store."""
AWAY = 60.0
"""A ledger's server may be away, or its file be written by others: a restart, not an outage."""
UNACKED = 60.0
"""A reading waits so long for the caller to acknowledge what the broker wants acknowledged first."""
ENDLESS = 120.0
"""What goes on for so long without what was asked for has no end: a letter that drips, errors before an
answer, connections that end, exchanges that lead to exchanges."""
UNINDEXED = 300.0
"""For the rows that an external store finds without an index."""
BUSY = 600.0
"""For another run that works on the same segments."""
LOOK = 900.0
"""All questions of one look together: who names something more now and then, without end, would hold it up
for ever."""
WHOLE_ANSWER = 6
"""Not seconds but time-outs: each read of an answer has one, the whole answer so many."""


def tries(seconds: float, pause: float = PAUSE, longest: float = 0.0) -> Iterator[None]:
    """Yield the turns of a loop: the first at once, the last when the time is over, with a pause between two,
    which doubles up to `longest`."""
    end = time.monotonic() + seconds
    while True:
        yield
        if (left := end - time.monotonic()) <= 0:
            return
        time.sleep(min(pause, left))
        pause = max(pause, min(2 * pause, longest))
