"""A folder keeps the contract of the archive's storage."""

from pathlib import Path

import pytest
from store_contract import Opening, StoreContract

from dlq.archive.store import LocalStore, open_store
from dlq.core.errors import UsageError


class TestFolder(StoreContract):
    """The suite, on a folder."""

    @pytest.fixture
    def opening(self, tmp_path: Path) -> Opening:
        return lambda: LocalStore(str(tmp_path / "archive"))


def test_another_kind_of_place_is_refused() -> None:
    with pytest.raises(UsageError, match="only folders and s3://bucket/path"):
        open_store("gs://bucket/path")
