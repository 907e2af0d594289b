"""Runs the benchmarks one after the other: `python bench/run.py [NAME...]` (rabbitmq, analyze, letters, ...).

Ratios are measured side by side in one run, on one machine; figures of different runs do not compare.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BENCHES = (
    "rabbitmq",
    "queues",
    "rocketmq",
    "activemq",
    "kafka",
    "analyze",
    "letters",
    "incidents",
    "grouping",
    "views",
    "retain",
    "scale",
    "serve",
    "agent_exam",
)


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all that there are; the worst exit code."""
    found = [name for name in names or BENCHES if (HERE / f"{name}.py").exists()]
    codes = []
    for name in found:
        print(f"\n=== {name}", flush=True)
        codes.append(subprocess.run([sys.executable, str(HERE / f"{name}.py")], check=False).returncode)
    return max(codes, default=2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
