"""Fingerprints stand in people's archives: they, and what they are made of, stay as they were."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from support.analyzers.error_texts import Case, cases

from dlq.analyzers.rules.exceptions import explain, fingerprint

GOLDEN = Path(__file__).with_name("fingerprints.jsonl")
"""Texts (`error_texts` made them, letters of the other tests brought them) with what version 1 says of
them: the values that Spark SQL with Java's patterns gave when an analysis was still made of these."""

GENERATED = 3_000
SEED = 7
ALL_OF_THEM = "79f26456b35a0fe41700917e2114933a6a3092e8d666dfe5d1f916eb22be1396"
"""Of what Spark SQL said of the first 3,000 generated texts."""


def said(case: Case) -> list[str | None]:
    failure = explain(case.error_class, case.error_message, case.error_text)
    where = case.dead_letter_queue if case.origin is None else case.origin
    return [*failure, fingerprint(case.cause, case.mechanism, where, failure)]


def test_every_text_keeps_its_values() -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()]
    assert len(lines) >= 300
    changed = [line for line in lines if said(Case(*line["of"])) != line["said"]]
    assert changed == []


def test_thousands_of_generated_texts_keep_their_values() -> None:
    digest = sha256()
    for case in cases(GENERATED, SEED):
        digest.update(json.dumps(said(case)).encode())
    assert digest.hexdigest() == ALL_OF_THEM
