"""How time and memory grow with the archive: the commands of one night, on 1 M and on 10 M letters.

    python bench/scale.py [RECORDS ...]      (default: 1000000 10000000)

Each command is the installed one, in a process of its own; memory is the most that it and its children
(the JVM) had at once. `per_million` is seconds of CPU a million letters, which a busy machine changes least:
where it does not grow, ten times the letters cost ten times as much, or less. Making the letters is not timed.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import letters
import psutil

from dlq.archive.storage.store import LocalStore

COMMANDS = (
    ("analyze",),
    ("report", "--format", "html", "--out", "report.html"),
    ("ls", "--limit", "100"),
    ("query", "SELECT cause, count(*) AS n FROM letters GROUP BY cause"),
    ("replay", "plan", "--any-advice", "--to", "queue:orders"),
)
CONFIGURATION = """
[brokers.shop]
kind = "memory"
[sources.orders]
broker = "shop"
queue = "orders.dlq"
"""
LOOK_SECONDS = 0.1
PART = 50 * letters.ROWS


def _fill(folder: str, first: int, end: int) -> None:
    letters.fill(LocalStore(folder), first, end)


def archive(folder: Path, records: int) -> int:
    """An archive of so many letters; returns its bytes."""
    (folder / "dlq.toml").write_text(CONFIGURATION)
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        parts = [
            workers.submit(_fill, str(folder / "archive"), first, min(first + PART, records))
            for first in range(0, records, PART)
        ]
        for part in parts:
            part.result()
    return sum(path.stat().st_size for path in (folder / "archive").rglob("*.parquet"))


def _used(process: psutil.Process) -> tuple[int, float]:
    """Bytes of memory and seconds of CPU of a process and its children, as far as they still run."""
    memory, cpu = 0, 0.0
    for one in (process, *process.children(recursive=True)):
        try:
            memory += one.memory_full_info().pss
            cpu += sum(one.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return memory, cpu


def measured(folder: Path, words: tuple[str, ...]) -> dict[str, Any]:
    """One command: seconds, seconds of CPU, and the most memory in MB."""
    program = str(Path(sys.executable).with_name("dlq"))
    start, most, cpu = time.perf_counter(), 0, 0.0
    with subprocess.Popen([program, *words], cwd=folder, stdout=subprocess.DEVNULL) as process:
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                memory, used = _used(watched)
            except psutil.NoSuchProcess:
                break
            most, cpu = max(most, memory), max(cpu, used)
            time.sleep(LOOK_SECONDS)
        assert process.wait() == 0, words
    seconds = time.perf_counter() - start
    return {"seconds": round(seconds, 1), "cpu": round(cpu, 1), "mb": most >> 20}


def night(records: int) -> dict[str, float]:
    """All commands on so many letters, printed line by line; command -> seconds of CPU a million letters."""
    folder = Path(tempfile.mkdtemp(prefix="dlq-bench-"))
    costs = {}
    try:
        size = archive(folder, records)
        print(json.dumps({"records": records, "archive_mb": size >> 20}), flush=True)
        for words in COMMANDS:
            name = " ".join(words[:2]) if words[0] == "replay" else words[0]
            found = measured(folder, words)
            costs[name] = found["cpu"] / records * 1e6
            line = {"records": records, "command": name, **found, "per_million": round(costs[name], 2)}
            print(json.dumps(line), flush=True)
    finally:
        shutil.rmtree(folder)
    return costs


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or [1_000_000, 10_000_000]
    nights = [night(records) for records in sizes]
    growth = {name: round(nights[-1][name] / cost, 2) for name, cost in nights[0].items()}
    print(json.dumps({"cost_per_million": f"{sizes[-1]} / {sizes[0]}", **growth}), flush=True)


if __name__ == "__main__":
    main()
