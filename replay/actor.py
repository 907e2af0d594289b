"""Who does something: the user of the operating system and the host, or who a person says to be."""

import os
import pwd
import socket

from dlq.core.errors import UsageError

_LONGEST = 255
_PROVEN = " [proven]"
"""Behind a name that was proven to `dlq serve`; who types a command says who they are."""


_FROM_SERVE = b"dlq serve says: "


def hand_over(proven: str) -> socket.socket:
    """Return the standard input of a command that `dlq serve` begins under a proven name. An option or a
    variable could be anybody's words; this is a socket that its process has made itself."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        ours.send(_FROM_SERVE + proven.encode("utf-8", "surrogatepass"))
    return theirs


def take_over(descriptor: int = 0) -> str | None:
    """Return the proven name that was handed over on standard input, which is empty from then on; None where
    something else is there. It is read whole, because whoever began this process may be gone."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as given:
            if (given.family, given.type) != (socket.AF_UNIX, socket.SOCK_SEQPACKET):
                return None
            said = given.recv(4 * _LONGEST + len(_FROM_SERVE), socket.MSG_DONTWAIT)
    except OSError:  # closed, no socket, or one that says nothing
        return None
    if not said.startswith(_FROM_SERVE):
        return None
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), descriptor)
    return said.removeprefix(_FROM_SERVE).decode("utf-8", "surrogatepass")


def mark_proven(name: str) -> str:
    """Return how the ledger writes a name that was proven."""
    return f"{name[: _LONGEST - len(_PROVEN)]}{_PROVEN}"


def _is_proven(actor_: str) -> bool:
    """Return whether a name was proven."""
    return actor_.endswith(_PROVEN)


def check_claim(name: str) -> str:
    """Return a name that somebody gives themselves. Raises UsageError for one that looks proven, also once it
    is cut to what the ledger keeps."""
    if any(_is_proven(kept.strip()) for kept in (name, name.strip()[:_LONGEST])):
        raise UsageError(
            f"--as {name}: only dlq serve can mark a name as proven; leave out {_PROVEN.strip()}"
        )
    return name


def person_of(actor_: str) -> str:
    """Return the person of a name, on whatever host, proven or not."""
    while _is_proven(actor_):
        actor_ = actor_.removesuffix(_PROVEN)
    return actor_.partition("@")[0].strip().casefold()


def actor(given: str | None = None) -> str:
    """Return `user@host`, or what `--as` gave; of a user without a name its number."""
    return ((given or "").strip() or f"{system_user()}@{socket.gethostname()}")[:_LONGEST]


def system_user() -> str:
    """Return whose process this is, as the kernel says, and no variable: who knows the token of `dlq serve`
    is proven to be that user."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user has no entry in /etc/passwd
        return str(os.getuid())


_AGENT = "agent "


def name_agent(agent: str, user: str) -> str:
    """Return an agent that acts for `user`, as the ledger writes it: `agent NAME for USER`."""
    kept = "".join(one for one in agent if one.isalnum() or one in "._-")[:40]
    return f"{_AGENT}{kept or 'unnamed'} for {user}"[:_LONGEST]


def is_agent(actor_: str) -> bool:
    """Return whether an agent did it."""
    return actor_.startswith(_AGENT)


def user_of(actor_: str) -> str:
    """Return whom an agent acts for; anybody else acts for themselves."""
    return actor_.partition(" for ")[2] if is_agent(actor_) else actor_
