"""The page of frameworks, from the table.

python tests/frameworks/page.py   writes docs/frameworks.md
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from frameworks.table import Failure, Framework, read

PAGE = Path(__file__).resolve().parents[2] / "docs" / "frameworks.md"
_BROKERS = {
    "rabbitmq": "RabbitMQ",
    "artemis": "Artemis",
    "classic": "ActiveMQ Classic",
    "rocketmq": "RocketMQ",
    "kafka": "Kafka",
}
_HEAD = """\
# Supported clients and frameworks

`dlq` explains letters that died in these clients and frameworks, and sends them back, as listed here.
This page is made of the tests' own table. `make frameworks` lets each of them make its failures on a real
broker, pulls and classifies the letters, replays them, and has a fixed consumer of the same framework take
them. Each is taken **once**, body and headers **unchanged** but for what the plan takes away (what the broker
wrote, like `x-death`, and what is named below), and **survives one hiccup** more.

A `?` behind a cause: other deaths leave the same trace, and the verdict lists them (`also_possible`).
A dash: nothing on the letter shows it.
"""


def render(frameworks: Sequence[Framework]) -> str:
    """The page as text."""
    parts = [_HEAD]
    for broker, name in _BROKERS.items():
        ours = [framework for framework in frameworks if framework.broker == broker]
        if ours:
            parts += [f"## {name}\n", *(_section(framework) for framework in ours)]
    return "\n".join(parts)


def _section(framework: Framework) -> str:
    lines = [
        f"### {framework.name} {framework.version}\n",
        *([f"{framework.note}\n"] if framework.note else []),
        "| the consumer | lies in | cause | attempts | exception | message | died in | goes to |",
        "|---|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(_cells(failure))} |" for failure in framework.failures),
        "",
        *([f"Planned with `{' '.join(framework.plan)}`.\n"] if framework.plan else []),
        f"The plan takes away: {', '.join(f'`{name}`' for name in framework.stripped) or 'nothing'}.\n",
    ]
    return "\n".join(lines)


def _cells(failure: Failure) -> Iterator[str]:
    yield failure.when
    yield f"`{failure.dead}`"
    yield f"`{failure.cause}{'?' if failure.proof == 'likely' else ''}`"
    for value in (failure.attempts, failure.exception, failure.message, failure.origin, failure.target):
        yield "–" if value is None else f"`{value}`".replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(render(read()))
