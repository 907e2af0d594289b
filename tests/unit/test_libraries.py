"""What `make` says while pip fetches and builds."""

import pytest
from support.libraries import long_step


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("  Downloading pyspark-4.0.1.tar.gz (434.2 MB)\n", "Downloading pyspark-4.0.1.tar.gz (434.2 MB)"),
        ("Downloading duckdb-2.0-cp311.whl (20 MB)\n", "Downloading duckdb-2.0-cp311.whl (20 MB)"),
        (
            "  Building wheel for pyspark (pyproject.toml): started\n",
            "Building wheel for pyspark",
        ),
        ("Installing collected packages: py4j, pyspark\n", "Installing collected packages"),
        ("Downloading rich-14.whl (243 kB)\n", None),
        ("Collecting pika<2,>=1.4.4\n", None),
        ("  Building wheel for pyspark (pyproject.toml): finished with status 'done'\n", None),
    ],
)
def test_steps_that_take_long_are_said_once(line: str, step: str | None) -> None:
    assert long_step(line) == step
