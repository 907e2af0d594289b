"""Changed bodies and headers for a plan: lines of `dlq export`, edited by hand or by a program.

A line names its letter by `record.record_id`. What the line holds and the archive does not is the
change; a line that changes nothing is no edit.
"""

import base64
import difflib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from operator import attrgetter
from typing import Any

from dlq.archive.storage.store import Store
from dlq.connectors.base import Outgoing
from dlq.connectors.file import lines_of, open_binary
from dlq.connectors.jsonl.format import body_of, parse_line, to_text
from dlq.core.brokers import plugin_of, resolve
from dlq.core.errors import ArchiveError, UsageError
from dlq.core.headers.failure_headers import Keep
from dlq.core.record import Record
from dlq.core.runtime.regular_files import UNREADABLE
from dlq.core.text import for_terminal, lines_for_terminal
from dlq.replay.plans.content import restore_planned
from dlq.replay.plans.letters import Letter, make_outgoing
from dlq.replay.plans.planfile import Header, edits_name, letters
from dlq.replay.runs.load import Loader

_MOST_DIFF_LINES = 20
_MOST_COMPARED = 5_000
"""Lines. Of more only the sizes are said: to compare them may take their square."""
_MOST_LETTERS = 50
LARGEST = 2 * 2**30
"""Bytes of all edits of a plan, which are in memory at once."""
_FIXED: Mapping[str, Callable[[Record], str | None]] = {
    "queue": attrgetter("dead_letter_queue"),
    **{name: attrgetter(name) for name in ("exchange", "routing_key", "message_id")},
}
"""What a line tells of a letter beside what is sent of it."""
_Mask = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""What may be shown of a letter: of its `headers`, `properties` and `body_base64`."""


class Edits:
    """The edits of one plan, by record id."""

    def __init__(self, lines: Mapping[str, bytes]) -> None:
        """`lines`: one for each of them."""
        self.lines = lines

    @property
    def changed(self) -> Collection[str]:
        """The record ids that are edited."""
        return self.lines.keys()

    def apply(self, record: Record) -> Record:
        """Return the record as it is to be sent.

        Where the broker's package can (`edit_headers`), the headers that stay keep their bytes; elsewhere, or
        with changed properties, the connector encodes all of them anew.
        """
        line = self.lines.get(record.record_id)
        if line is None:
            return record
        try:
            return change(record, json.loads(line))
        except UsageError as error:
            raise UsageError(f"the edit of letter {record.record_id[:12]} cannot be sent: {error}") from error

    def list_ignored(self, record: Record) -> list[str]:
        """Return what the letter's line says otherwise, and no edit changes."""
        said = json.loads(self.lines[record.record_id])
        return [name for name, one in _FIXED.items() if said.get(name, one(record)) != one(record)]

    def check_used(self, used: Collection[str]) -> None:
        """Check that every edit belongs to a letter of the plan; raises UsageError for one that does not."""
        unused = sorted(self.lines.keys() - set(used))
        if unused:
            raise UsageError(
                f"{len(unused)} edited letters are not in the plan, the first is {for_terminal(unused[0])}: "
                "the archive lacks the letter, it cannot go back, or --limit leaves it out"
                "; remove their lines"
            )

    def content(self, used: Iterable[str]) -> bytes:
        """Return the file that is kept beside the plan."""
        return b"".join(self.lines[record_id].strip() + b"\n" for record_id in sorted(used))

    def digest(self, used: Collection[str]) -> str | None:
        """Return what the plan remembers of the edits."""
        return sha256(self.content(used)).hexdigest() if used else None


def change(record: Record, document: Mapping[str, Any]) -> Record:
    """Return the record with what a line says otherwise; raises UsageError for what cannot be sent."""
    changes: dict[str, Any] = {}
    body = body_of(document) if {"body_text", "body_base64"} & document.keys() else record.body
    if body != record.body:
        changes |= {"body": body, "body_size": len(body), "body_sha256": sha256(body).hexdigest()}
    return record._replace(**changes, **_maps(record, document))


def planned_outgoing(
    letter: Letter, record: Record, changes: Edits, keep_headers: Keep, is_bound: bool = False
) -> Outgoing | None:
    """Return a letter of a plan as it goes; None where the record is not what was planned. `is_bound`: it was
    read from the very bytes that the plan was made from."""
    planned = record if is_bound else restore_planned(letter, record, letter.record_id in changes.changed)
    return None if planned is None else make_outgoing(letter, changes.apply(planned), keep_headers)


def _maps(record: Record, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed headers and properties of a record, and its block with them. Raises UsageError."""
    changes: dict[str, Any] = {}
    block = record.raw_properties
    for name, edit in (("headers", _with_headers), ("properties", _with_properties)):
        given = document.get(name, {})
        wanted = {key: to_text(value) for key, value in given.items()}
        is_void = any(value is None and getattr(record, name).get(key) != "" for key, value in given.items())
        if name in document and (is_void or wanted != dict(getattr(record, name))):
            block = edit(record, block, given)
            changes |= {name: wanted, "raw_properties": block}
    return changes


def _with_headers(record: Record, block: bytes | None, wanted: Mapping[str, Any]) -> bytes | None:
    """Return the property block with these headers, or None where only the connector can make it."""
    edit = plugin_of(record.broker_kind).edit_headers
    known = record.headers
    changed = {
        name: value for name, value in wanted.items() if value is None or known.get(name) != to_text(value)
    }
    if edit and block is not None:
        with suppress(ValueError):  # damaged, or another protocol's
            edited: bytes = resolve(edit)(block, lambda name: name not in wanted, changed)
            return edited
    _only_texts("header", changed)
    return None


def _with_properties(record: Record, block: bytes | None, wanted: Mapping[str, Any]) -> bytes | None:
    edit = plugin_of(record.broker_kind).edit_properties
    _only_texts("property", wanted)
    if not edit or block is None:
        return None
    with suppress(ValueError):  # damaged
        edited: bytes = resolve(edit)(block, {name: to_text(value) for name, value in wanted.items()})
        return edited
    return None


def _only_texts(what: str, values: Mapping[str, Any]) -> None:
    """Check that a value is a text; a number or a truth value is written as one."""
    for name, value in values.items():
        if value is None or isinstance(value, dict | list):
            raise UsageError(f"{what} {name!r} must be text, not {json.dumps(value)[:60]}")


NO_EDITS = Edits({})


def parse(lines: Iterable[bytes], place: str) -> Edits:
    """Read edits from JSONL; raises UsageError naming `place` and the line."""
    found: dict[str, bytes] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            document = parse_line(line)
            body_of(document)
            record_id = document.get("record", {}).get("record_id")
            if not isinstance(record_id, str):
                raise UsageError(
                    "it has no record.record_id, so it names no letter; edit lines of `dlq export`"
                )
            if record_id in found:
                raise UsageError(
                    f"letter {record_id} was edited by an earlier line already; leave one of them"
                )
        except UsageError as error:
            raise UsageError(f"{place}, line {number}: {error}") from error
        found[record_id] = line
    if not found:
        raise UsageError(f"{place} holds no line with a letter; edit lines of `dlq export`")
    return Edits(found)


def read(path: str) -> Edits:
    """Read edits from a file of the user's, unpacked if its name ends in .gz; raises UsageError."""
    try:
        with open_binary(path) as file:
            return parse(lines_of(file, path), path)
    except UNREADABLE as error:
        raise UsageError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}; check its path and rights"
        ) from error


def load(store: Store, header: Header) -> Edits:
    """Return the edits that were kept with a plan; raises UsageError when they were changed since."""
    if header.edits is None:
        return NO_EDITS
    with store.open(edits_name(header.plan)) as file:
        if file.seek(0, os.SEEK_END) > LARGEST:
            raise ArchiveError(f"{edits_name(header.plan)} in the archive is larger than {LARGEST >> 30} GiB")
        file.seek(0)
        content = file.read()
    if sha256(content).hexdigest() != header.edits:
        raise UsageError(f"the edits of plan {header.plan} were changed after it was made; make a new plan")
    return parse(content.splitlines(keepends=True), edits_name(header.plan))


def differences(store: Store, header: Header, changes: Edits, mask: _Mask = dict) -> Iterator[str]:
    """Yield what the edits of a plan change, letter by letter, in lines that are safe for a terminal and hold
    what `mask` lets be shown: from the lines themselves nobody can tell what is a header, or JSON."""
    if header.edits is None:
        return
    loader = Loader(store)
    edited = (x for x in letters(store, header.plan) if x.record_id in changes.changed)
    for letter in islice(edited, _MOST_LETTERS):
        [before] = loader.records([letter])
        yield letter.record_id
        yield from (f"  {line}" for line in difference(before, changes.apply(before), mask))


def difference(before: Record, after: Record, mask: _Mask = dict) -> list[str]:
    """Return what an edit changes, in lines as of `differences`."""
    lines = [
        *_map_difference("header", before.headers, after.headers, mask),
        *_map_difference("property", before.properties, after.properties, mask),
    ]
    if before.body != after.body:
        lines.append(f"body: {len(before.body)} -> {len(after.body)} bytes")
        lines += _body_difference(_body_shown(before.body, mask), _body_shown(after.body, mask))
    return lines


def _map_difference(
    kind: str, before: Mapping[str, str], after: Mapping[str, str], mask: _Mask
) -> Iterator[str]:
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            (shown, old), (_, new) = (_entry_shown(name, some.get(name), mask) for some in (before, after))
            yield f"{kind} {shown}: {old} -> {new}"


def _entry_shown(name: str, value: str | None, mask: _Mask) -> tuple[str, str]:
    """Return a header's name, and its value. A property is masked as a header is."""
    found = mask({"headers": {name: value or ""}})["headers"]
    shown, text = next(iter(found.items())) if isinstance(found, Mapping) else (found, found)
    return for_terminal(str(shown)), "(none)" if value is None else for_terminal(str(text))


def _body_shown(body: bytes, mask: _Mask) -> bytes:
    found = mask({"body_base64": base64.b64encode(body).decode()})["body_base64"]
    with suppress(ValueError):
        return base64.b64decode(found)
    return b""


def _body_difference(before: bytes, after: bytes) -> list[str]:
    try:
        old, new = before.decode(), after.decode()
    except UnicodeDecodeError:
        return []
    old_lines, new_lines = lines_for_terminal(old), lines_for_terminal(new)
    if max(len(old_lines), len(new_lines)) > _MOST_COMPARED:
        return []
    diff = difflib.unified_diff(old_lines, new_lines, lineterm="", n=1)
    return list(diff)[2:][:_MOST_DIFF_LINES]
