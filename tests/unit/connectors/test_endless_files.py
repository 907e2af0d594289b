"""An input without an end is no file of letters."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dlq.connectors import file
from dlq.connectors.base import ReadRequest
from dlq.core.errors import UsageError
from dlq.core.settings import Source
from dlq.replay import edits


def imported(path: str) -> object:
    return list(file.FileReading(path, ReadRequest(Source("s", "b"), "copy", "p"), None).batches())


@pytest.mark.parametrize("read", [imported, edits.read])
def test_a_line_that_is_too_long_for_any_letter_ends_the_command(
    read: Callable[[str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "_LONGEST", 2**20)
    (tmp_path / "endless").write_bytes(bytes(2**20 + 1))

    with pytest.raises(UsageError, match="endless: line of more than 1 MiB: this is no file of letters"):
        read(str(tmp_path / "endless"))
