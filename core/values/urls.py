"""URLs of the configuration: none may hold a password, and none is shown with what could hide one."""

import re
from urllib.parse import unquote_plus, urlsplit

from dlq.core.errors import ConfigError
from dlq.core.text import quote_value

_HOST = re.compile(r"[^:/]*(?::[0-9]+)?(?:/.*)?|\[[^]]*\](?::[0-9]+)?(?:/.*)?", re.DOTALL)
_PORT = re.compile(r"[^:/]*:[0-9]+/.*", re.DOTALL)
_SCHEME = re.compile(r"^[\w+.-]+://")
_SECRET = re.compile(
    r"pass|pwd|secret|token|credential|bearer|signature|jwt|key$|^(?:auth|authorization|sig|sas|psk|pw|pin)$"
)
"""Names of parameters, in lower case and without `_`, `-` and `.`."""
_FILES = re.compile(r"(?:file|path)$|^sslkey$")
"""Those that name a file, such as libpq's passfile and sslkey."""
_BESIDE = "password_file, password_command or password_env beside it"


def check(place: str, url: str | None, instead: str = _BESIDE) -> None:
    """Raise ConfigError for a URL with a password before its host or among its parameters, where `instead`
    says what it belongs into, and for one with an address that no library can connect to: each would end in
    an error of its own."""
    address, parameters = _parts(url or "")
    names = (unquote_plus(pair.partition("=")[0]) for pair in re.split("[&;]", parameters))
    if _has_password(address, "@" in parameters) or any(map(_is_secret, names)):
        raise ConfigError(f"{place} holds a password; put it into {instead}")
    _check_addresses(place, url or "")


def _has_password(address: str, is_cut: bool) -> bool:
    """Return whether a user has one, of a list of hosts with users, or of one that is cut within its user.
    Whatever stands before an `@` counts, for passwords may hold a `/`, a `,` or what begins parameters."""
    *before, last = address.partition("://")[2].split("@")
    hosts = last.split(",") if is_cut else []
    for part in before:
        *others, user = (_SCHEME.sub("", one) for one in part.split(","))
        if ":" in user and not _PORT.fullmatch(user):
            return True
        hosts += others
    return not all(map(_HOST.fullmatch, hosts))


def _check_addresses(place: str, url: str) -> None:
    try:
        addresses = urlsplit(url).netloc.rpartition("@")[2].split(",")
        wrong = next((each for each in addresses if each and not _is_address(each)), None)
    except ValueError:  # brackets of no IPv6 address, or a sign that would become another
        wrong = without_password(url)
    if wrong is not None:
        raise ConfigError(
            f"{place}: {quote_value(wrong)} is not host:port; write it like host.example:5672 or [::1]:5672"
        )


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(f"//{text}")
        (parts.hostname or "").encode("idna")  # what every library does before it looks a name up
        return parts.port is None or bool(parts.hostname)
    except ValueError:
        return False


def _is_secret(name: str) -> bool:
    plain = re.sub(r"[\W_]", "", name.lower())
    return _SECRET.search(plain) is not None and not _FILES.search(plain)


def without_password(url: str) -> str:
    """Return the URL for a message: without parameters, and without whatever follows the user."""
    return _parts(re.sub(r"([/,][^/,@:]*):[^@]*@", r"\1@", url))[0]


def _parts(url: str) -> tuple[str, str]:
    address, _, parameters = re.sub("[?#]", "?", url, count=1).partition("?")
    return address, parameters
