"""What a form brings, once it is sure that it is one of ours.

A change is made by POST alone, from a page of ours (the browser says from where it was sent), with the token
that this person's pages hold. Either check would do; a browser that lacks one has the other.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl

from starlette.requests import Request

from dlq.core.text import encodable
from dlq.web.guard import Refused
from dlq.web.people import Person, Sessions

_MOST_FIELDS = 2_000
_TOKEN = "form_token"  # noqa: S105 (the name of a field)


class Form:
    """The fields of a form, texts without half characters."""

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        self._fields: dict[str, list[str]] = {}
        for name, value in fields:
            self._fields.setdefault(name, []).append(encodable(value))

    def text(self, name: str) -> str:
        """Return a field without blanks around it; nothing where it is missing."""
        return self.exact(name).strip()

    def exact(self, name: str) -> str:
        """Return a field as it was sent, with the line breaks that text has outside of forms."""
        return self._fields.get(name, [""])[-1].replace("\r\n", "\n")

    def several(self, name: str) -> list[str]:
        """Return all values of a field that may come several times."""
        return self._fields.get(name, [])

    def names(self) -> Mapping[str, object]:
        """Return which fields there are."""
        return self._fields


async def read_form(request: Request, sessions: Sessions, person: Person) -> Form:
    """The form of this person. Raises Refused unless a page of ours sent it."""
    check_origin(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Refused(415, "a form of these pages is application/x-www-form-urlencoded")
    text = (await request.body()).decode("utf-8", "replace")
    try:
        fields = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise Refused(413, f"a form has {_MOST_FIELDS:,} fields at most") from error
    form = Form(fields)
    if not sessions.is_form_token(person, form.text(_TOKEN)):
        raise Refused(403, "this form is not of your session: open its page again, and send it from there")
    return form


def check_origin(request: Request) -> None:
    """Raise Refused for a change that a page of another site has sent.

    Without a referrer browsers call the origin of a form null; then they say in Sec-Fetch-Site whether it is
    the same.
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin", "null")
    of_page = origin.partition("://")[2] == request.headers["host"]
    same = site == "same-origin" if origin == "null" else of_page
    if not same or site not in (None, "same-origin"):
        raise Refused(403, "a change comes from a page of this server alone")
