"""Fingerprints stand in people's archives and notes: they, and what they are made of, stay as they were."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support.analyzers.error_texts import Case, cases

from dlq.analyzers.rules import former
from dlq.analyzers.rules.exceptions import LONGEST_HINT, explain, family, fingerprint

GENERATED = 3_000
SEED = 7


def version_1(case: Case) -> list[str | None]:
    read = former.read(case.error_class, case.error_message, case.error_text)
    message = read.exception_message
    kind = family(read.exception_class, None if message is None else message[:LONGEST_HINT])
    printed = former.fingerprint(case.cause, case.mechanism, where(case), read)
    return [read.exception_class, message, kind, read.place, printed]


def version_2(case: Case) -> list[str | None]:
    failure = explain(case.error_class, case.error_message, case.error_text)
    return [*failure, fingerprint(case.cause, case.mechanism, where(case), failure)]


def where(case: Case) -> str | None:
    return case.dead_letter_queue if case.origin is None else case.origin


VERSIONS = [
    (version_1, "fingerprints.jsonl", "79f26456b35a0fe41700917e2114933a6a3092e8d666dfe5d1f916eb22be1396"),
    (version_2, "fingerprints_2.jsonl", "02e489992d19e2b47040f3b7d4755254b782f6e4ef182d81926180207159bb45"),
]
"""What reads a case; texts (`error_texts` made them, letters of the other tests brought them) with what it says
of them; a digest of what it says of the first 3,000 generated texts. Of version 1 these are the values that
Spark SQL with Java's patterns gave when an analysis was still made of these."""


@pytest.mark.parametrize(("said", "golden", "_digest"), VERSIONS)
def test_every_text_keeps_its_values(
    said: Callable[[Case], list[str | None]], golden: str, _digest: str
) -> None:
    text = Path(__file__).with_name(golden).read_text("utf-8")
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    assert len(lines) >= 300
    changed = [line for line in lines if said(Case(*line["of"])) != line["said"]]
    assert changed == []


@pytest.mark.parametrize(("said", "_golden", "expected"), VERSIONS)
def test_thousands_of_generated_texts_keep_their_values(
    said: Callable[[Case], list[str | None]], _golden: str, expected: str
) -> None:
    digest = sha256()
    for case in cases(GENERATED, SEED):
        digest.update(json.dumps(said(case)).encode())
    assert digest.hexdigest() == expected
