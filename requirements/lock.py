"""Write the lists of what is installed, each version with its hashes: `make lock`.

`build.txt` builds the packages that come as source, `demo.txt` and `dev.txt` are what `make demo` and the
tests use, `image.txt` and `image-spark.txt` are what the images of `Containerfile` hold, `release.txt` is
what `make dist` calls, `frameworks.txt` holds the Python clients of `make frameworks`, and `lowest.txt` the
lowest versions that `pyproject.toml` allows. A list holds for each Python and machine that `dlq` supports.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
WITHOUT_SPARK = ("redis", "postgres", "mysql", "s3", "kafka", "lz4", "otlp", "mcp", "serve")
"""All extras of users but Spark, which the lowest versions leave out, as it is installed in one version."""


def _extras(*names: str) -> tuple[str, ...]:
    return tuple(word for name in names for word in ("--extra", name))


LISTS: dict[str, tuple[str, ...]] = {
    "build": ("requirements/build.in",),
    "demo": ("pyproject.toml",),
    "image": ("pyproject.toml", *_extras(*WITHOUT_SPARK)),
    "image-spark": ("pyproject.toml", *_extras("spark", *WITHOUT_SPARK)),
    "dev": ("pyproject.toml", "--extra", "dev"),
    "release": ("requirements/release.in",),
    "frameworks": ("requirements/frameworks.in",),
    "lowest": (
        "pyproject.toml",
        "--resolution=lowest-direct",
        *_extras(*WITHOUT_SPARK),
    ),
}
"""Name -> what `uv pip compile` makes it of."""


def main(names: list[str]) -> None:
    """Write these lists, or all. What a list holds already stays unless it no longer fits."""
    for name in names or LISTS:
        words = ["--universal", "--python-version=3.11", "--generate-hashes", "--no-header", "--no-annotate"]
        words += ["--quiet", "--no-emit-index-url", "--output-file", f"requirements/{name}.txt"]
        uv = [sys.executable, "-m", "uv", "pip", "compile", *words, *LISTS[name]]
        subprocess.run(uv, cwd=HERE.parent, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
