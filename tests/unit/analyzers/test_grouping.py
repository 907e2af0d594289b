"""How well fingerprints group: the figures of bench/grouping.py do not get worse unseen."""

from pathlib import Path
from types import ModuleType

import pytest
from support.builders import load_script


@pytest.fixture(scope="module")
def grouping() -> ModuleType:
    return load_script(Path(__file__).parents[3] / "bench" / "grouping.py")


def test_letters_of_one_failure_come_together_and_others_stay_apart(grouping: ModuleType) -> None:
    told = grouping.letters(grouping.failures(), seeds=1)
    texts, truth = [one.text for one in told], [one.failure for one in told]
    found = grouping.score(truth, grouping.ours(texts))
    rival = grouping.score(truth, grouping.all_frames(texts))
    assert (found.precision, found.merged) == (1, 0)
    assert found.recall > 0.94
    assert found.b_recall > 0.94
    assert rival.recall < found.recall
