"""Who does something: the user of the operating system and the host, or who a person says to be."""

import getpass
import os
import socket

from dlq.core.errors import UsageError

_LONGEST = 255
_PROVEN = " [proven]"
"""Behind a name that was proven to `dlq serve`; who types a command says who they are."""


PROVEN_BY = "DLQ_PROVEN_ACTOR"
"""The variable by which `dlq serve` tells a command that it begins whose proven name it runs under."""


def mark_proven(name: str) -> str:
    """How the ledger writes a name that was proven."""
    return f"{name[: _LONGEST - len(_PROVEN)]}{_PROVEN}"


def _is_proven(actor_: str) -> bool:
    """Whether a name was proven."""
    return actor_.endswith(_PROVEN)


def check_claim(name: str) -> str:
    """A name that somebody gives themselves. Raises UsageError for one that looks proven."""
    if _is_proven(name.strip()):
        raise UsageError(
            f"--as {name}: only dlq serve says that a name is proven; leave out {_PROVEN.strip()}"
        )
    return name


def person_of(actor_: str) -> str:
    """A name is one person's, on whatever host, proven or not."""
    return actor_.removesuffix(_PROVEN).partition("@")[0].strip().casefold()


def actor(given: str | None = None) -> str:
    """`user@host`, or what `--as` gave; of a user without a name its number."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user has no entry in /etc/passwd
        user = str(os.getuid())
    return ((given or "").strip() or f"{user}@{socket.gethostname()}")[:_LONGEST]


_AGENT = "agent "


def name_agent(agent: str, user: str) -> str:
    """An agent that acts for `user`, as the ledger writes it: `agent NAME for USER`."""
    kept = "".join(one for one in agent if one.isalnum() or one in "._-")[:40]
    return f"{_AGENT}{kept or 'unnamed'} for {user}"[:_LONGEST]


def is_agent(actor_: str) -> bool:
    """Whether an agent did it."""
    return actor_.startswith(_AGENT)


def user_of(actor_: str) -> str:
    """Whom an agent acts for; anybody else acts for themselves."""
    return actor_.partition(" for ")[2] if is_agent(actor_) else actor_
