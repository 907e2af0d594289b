"""Fingerprints stand in people's archives and notes: they, and what they are made of, stay as they were."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from support.analyzers.error_texts import Case, cases

from dlq.analyzers.rules.exceptions import explain, fingerprint

GENERATED = 3_000
SEED = 7


def read(case: Case) -> list[str | None]:
    failure = explain(case.error_class, case.error_message, case.error_text)
    return [*failure[:4], fingerprint(case.cause, case.mechanism, where(case), failure)]


def where(case: Case) -> str | None:
    return case.dead_letter_queue if case.origin is None else case.origin


DIGEST = "c369aec53b38e36370cc68db483d71b577492e7820f7a59ac05c8cf8caf065da"
"""Of what is said of the first 3,000 generated texts."""


def test_every_text_keeps_its_values() -> None:
    text = Path(__file__).with_name("fingerprints.jsonl").read_text("utf-8")
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    assert len(lines) >= 300
    assert [line for line in lines if read(Case(*line["of"])) != line["said"]] == []


def test_thousands_of_generated_texts_keep_their_values() -> None:
    digest = sha256()
    for case in cases(GENERATED, SEED):
        digest.update(json.dumps(read(case)).encode())
    assert digest.hexdigest() == DIGEST
