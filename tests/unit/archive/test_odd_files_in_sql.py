"""What a store gives for a segment, and DuckDB cannot read, is damage: never the fault of who asks."""

import duckdb
import pytest
from support.rows import each_row

from dlq.archive.user_sql import guarded
from dlq.core.errors import ArchiveError

OF_A_FILE = "Traceback (most recent call last):\n  File 'x.py', line 1\n\nOSError: its size is odd\n"
PICTURE = "\nLINE 1: SELECT x FROM read_parquet(['s3://a/b'...\n                      ^^^^^^^^^^^^^^^"
OF_SEVERAL = (
    "Traceback (most recent call last):\n  File 'x.py', line 1, in send\n    raise Odd\nOdd: 400, message='"
    f"Bad Length:\n\n  b'x'\n    ^', url='http://x'\n{PICTURE}"
)
SAID = {
    f"Invalid Input Error: {OF_A_FILE}": "its size is odd",
    f"Invalid Input Error: \n{OF_A_FILE}": "its size is odd",
    f"{OF_A_FILE}{PICTURE}": "OSError: its size is odd$",
    OF_SEVERAL: r"Odd: 400, message='Bad Length: b'x' \^', url='http://x'$",
    f"Invalid Input Error: {OF_SEVERAL}": r"Odd: 400, message='Bad Length: b'x' \^', url='http://x'$",
    "Traceback (most recent call last):": "no reason given",
    "Invalid Input Error: File 's3://a/b' too small to be a Parquet file": "too small",
    "Invalid Input Error: Footer length error in file 's3://a/b'": "Footer length error",
    "don't know what type: \x0e": "know what type",
}


@each_row("said", SAID)
def test_a_file_that_cannot_be_read_is_damage(said: str) -> None:
    with pytest.raises(ArchiveError, match=f"cannot read the archive: .*{SAID[said]}") as refused:  # noqa: SIM117
        with guarded(duckdb.connect()):
            raise duckdb.InvalidInputException(said)
    assert "\n" not in str(refused.value)
