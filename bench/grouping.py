"""How well letters of one failure are grouped: `dlq`'s fingerprints beside what others group by.

    python bench/grouping.py [--seeds N] [--reports FILE.csv [--own PACKAGE]] [--misses]

Every failure of traces.toml is told many times, as retold.py changes it; the groups that a rule makes of all
letters are compared with the failures. With --reports the failures are bug reports of a public set instead (a CSV
file with the columns `Issue id` and `Description`): the first Java stack trace of each, retold the same way.
"""

import argparse
import json
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from retold import changes_for, filled

from dlq.analyzers.rules import exceptions, stack

TRACES = Path(__file__).with_name("traces.toml")
AS_IT_IS = "as it is"
"""Ids, times and names alone differ."""
LANGUAGE = "message in another language"
SEVERAL = "three of these"


class Letter(NamedTuple):
    """An error text; `failure` is the truth."""

    failure: str
    text: str
    change: str


# --- Letters whose failures are known ---


def letters_of(failure: Mapping[str, Any], random: Random) -> Iterator[Letter]:
    """One failure, told in all ways that its kind of trace can be told."""
    changes = changes_for(failure["kind"])

    def told(how: str, said: str | None = None, *names: str) -> Letter:
        text = filled(random, failure, said)
        for name in names:
            text = random.choice(changes[name])(random, text)
        return Letter(failure["name"], text, how)

    for _ in range(3):
        yield told(AS_IT_IS)
    for said in failure.get("said", ())[1:]:
        yield told(LANGUAGE, said)
    for name in changes:
        for _ in range(2):
            letter = told(name, None, name)
            if letter.text != told(AS_IT_IS).text:
                yield letter
    some = [name for name in changes if not name.startswith(("cut", "line"))]
    for _ in range(3):
        yield told(SEVERAL, None, *random.sample(some, min(3, len(some))))


def failures() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(TRACES.read_text("utf-8"))["failure"]
    return found


_TRACE = re.compile(r"^[ \t]*(?:Caused by: )?((?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error|Throwable)\b[^\n]*(?:\n[^\n]{0,300}){0,3}?(?:\n\s+at [\w.$<>/-]+\([^\n]*|\n\s*\.\.\. \d+[^\n]*|\n\s*Caused by: [^\n]*){3,})", re.MULTILINE)  # fmt: skip


def reports(path: Path, own: str) -> list[dict[str, Any]]:
    """Bug reports with a stack trace: a failure each. `own` is what own classes' names begin with there."""
    import csv

    csv.field_size_limit(10**9)
    with path.open(newline="", encoding="utf-8") as file:
        rows = [
            (row["Issue id"], _TRACE.search((row["Description"] or "").replace("\r\n", "\n")))
            for row in csv.DictReader(file)
        ]
    return [
        {"name": name, "kind": "java", "text": found[1].replace("«", "").replace(own, "com.acme")}
        for name, found in rows
        if found
    ]


def letters(of: Sequence[Mapping[str, Any]], seeds: int) -> list[Letter]:
    found = [
        one
        for seed in range(seeds)
        for failure in of
        for one in letters_of(failure, Random(f"{seed} {failure['name']}"))
    ]
    Random(1).shuffle(found)
    return found


# --- Rules that make groups ---

Group = Hashable


def _root(text: str) -> tuple[exceptions.ReadException, list[str]]:
    return exceptions.explain(None, None, text), stack.parts(stack.tidy(text))


def ours(texts: Sequence[str]) -> list[Group]:
    return [exceptions.fingerprint("", None, None, exceptions.explain(None, None, text)) for text in texts]


def first_frame(texts: Sequence[str]) -> list[Group]:
    """ServicePulse's groups: the exception's type, and the method of the first frame, as it is printed."""
    found: list[Group] = []
    for text in texts:
        head = re.match(r"(?:panic: )?[\w.$+\\:]+", text)
        frame = re.search(
            r"^\s*(?:at|bei|à|в|在|en|場所) (?:async )?([^\s(]+)|^ *File \"[^\"]+\", line \d+, in (\S+)|^\S+:\d+:in (\S+)|^#0 [^\n]*?: ([^\s(]+)|^(\S+)\([^\n]*\)\n\t",
            text,
            re.MULTILINE,
        )
        found.append((head and head[0], frame and frame[frame.lastindex or 0]))
    return found


def messages(texts: Sequence[str]) -> list[Group]:
    """Templates that Drain3 finds in `class: message` of the root cause, with its defaults."""
    try:
        from drain3 import TemplateMiner
        from drain3.template_miner_config import TemplateMinerConfig
    except ModuleNotFoundError:
        sys.exit("a rival is missing: pip install -e '.[bench]'")
    miner = TemplateMiner(config=TemplateMinerConfig())
    said = [
        " ".join(f"{one.exception_class or ''}: {one.exception_message or ''}".split("\n")[0].split())
        for one, _ in map(_root, texts)
    ]
    return [miner.add_log_message(one)["cluster_id"] for one in said]


_NORMALIZED = (
    (re.compile(r"(\$\$[\w_]+?CGLIB\$\$)[a-fA-F0-9]+(_[0-9]+)?"), r"\1<auto>"),
    (re.compile(r"lambda\$([^$]*\$)?\d+"), "lambda$<auto>"),
    (re.compile(r"(\$\$_javassist)(?:_seam)?(?:_[0-9]+)?"), r"\1<auto>"),
    (re.compile(r"\$\d+(?=[.$]|$)"), "$<auto>"),
)


def all_frames(texts: Sequence[str]) -> list[Group]:
    """Sentry's old rule: the class and all own frames without generated numbers; without frames the message."""
    found: list[Group] = []
    for text in texts:
        told, parts = _root(text)
        calls = re.findall(r"^\s*(?:at|bei|à|в|在|en|場所) (?:async )?([^\s(]+)[ (]", text, re.MULTILINE)
        own = [name for name in calls if stack.is_own(f"at {name}(X.java:1)")] or [
            frame.name for part in parts for frame in stack.frames(part) if frame.is_own
        ]
        for pattern, kept in _NORMALIZED:
            own = [pattern.sub(kept, name) for name in own]
        found.append((told.exception_class, *own) if own else (told.exception_class, told.exception_message))
    return found


RULES: Mapping[str, Callable[[Sequence[str]], list[Group]]] = {
    "class and first frame (ServicePulse)": first_frame,
    "message template (Drain3)": messages,
    "class and all own frames (Sentry's old rule)": all_frames,
    "dlq's fingerprint": ours,
}

# --- How well the groups fit ---


class Score(NamedTuple):
    """Of all pairs of letters, B-cubed (each letter's view of its group), and of whole failures and groups."""

    precision: float
    recall: float
    b_precision: float
    b_recall: float
    split: int
    """Failures whose letters are in several groups."""
    pieces: int
    """Groups beyond one a failure: how many more rows a person sees."""
    merged: int
    """Groups that hold letters of several failures."""

    @property
    def f1(self) -> float:
        return 2 * self.b_precision * self.b_recall / (self.b_precision + self.b_recall)


def _pairs(counts: Sequence[int]) -> int:
    return sum(n * (n - 1) // 2 for n in counts)


def score(truth: Sequence[Hashable], groups: Sequence[Group]) -> Score:
    """Groups against the truth, letter by letter."""
    of_truth, of_group, both = Counter(truth), Counter(groups), Counter(zip(truth, groups, strict=True))
    shared = _pairs(list(both.values()))
    total = len(truth)
    in_group, of_failure = Counter(g for _, g in both), Counter(t for t, _ in both)
    return Score(
        shared / max(1, _pairs(list(of_group.values()))),
        shared / max(1, _pairs(list(of_truth.values()))),
        sum(n * n / of_group[g] for (_, g), n in both.items()) / total,
        sum(n * n / of_truth[t] for (t, _), n in both.items()) / total,
        sum(n > 1 for n in of_failure.values()),
        sum(n - 1 for n in of_failure.values()),
        sum(n > 1 for n in in_group.values()),
    )


def homes(told: Sequence[Letter], groups: Sequence[Group]) -> dict[str, Group]:
    """Failure -> the group of most of its letters that nothing was changed in."""
    found: defaultdict[str, Counter[Group]] = defaultdict(Counter)
    for letter, group in zip(told, groups, strict=True):
        if letter.change == AS_IT_IS:
            found[letter.failure][group] += 1
    return {failure: counts.most_common(1)[0][0] for failure, counts in found.items()}


def kept(told: Sequence[Letter], groups: Sequence[Group]) -> dict[str, float]:
    """Change -> the share of letters that are still in the group of their failure's unchanged letters."""
    home = homes(told, groups)
    all_, there = (
        Counter(one.change for one in told),
        Counter(one.change for one, group in zip(told, groups, strict=True) if home[one.failure] == group),
    )
    return {change: there[change] / all_[change] for change in all_}


def show(told: Sequence[Letter]) -> None:
    texts = [one.text for one in told]
    made = {name: rule(texts) for name, rule in RULES.items()}
    print(f"{len(told):,} letters of {len({one.failure for one in told})} failures\n")
    print(
        "| grouped by | groups | pairs: precision | recall | B-cubed: precision | recall | F1 | failures split | pieces | groups merged |"
    )
    print("| --- |" + " ---: |" * 9)
    for name, groups in made.items():
        s = score([one.failure for one in told], groups)
        figures = " | ".join(f"{x:.3f}" for x in (s.precision, s.recall, s.b_precision, s.b_recall, s.f1))
        print(f"| {name} | {len(set(groups)):,} | {figures} | {s.split} | {s.pieces:,} | {s.merged} |")
    print("\nLetters that stay with their failure, %:\n")
    shares = [kept(told, groups) for groups in made.values()]
    print("| what changed | letters | first frame | template | all frames | dlq |")
    print("| --- |" + " ---: |" * 5)
    for change, count in sorted(
        Counter(one.change for one in told).items(),
        key=lambda pair: (pair[0] != AS_IT_IS, pair[0] == SEVERAL, pair[0]),
    ):
        print(
            f"| {change} | {count} | " + " | ".join(f"{100 * share[change]:.0f}" for share in shares) + " |"
        )


def misses(told: Sequence[Letter]) -> Iterator[str]:
    """Letters that our fingerprint puts elsewhere, for whoever mends it."""
    groups = ours([one.text for one in told])
    home = homes(told, groups)
    for group, names in _merged(told, groups).items():
        yield json.dumps({"merged": sorted(names), "group": str(group)}, ensure_ascii=False)
    for letter, group in zip(told, groups, strict=True):
        if home[letter.failure] != group:
            read = exceptions.explain(None, None, letter.text)
            yield json.dumps(
                {
                    "failure": letter.failure,
                    "change": letter.change,
                    "class": read.exception_class,
                    "place": read.place,
                    "text": letter.text,
                },
                ensure_ascii=False,
            )


def _merged(told: Sequence[Letter], groups: Sequence[Group]) -> dict[Group, set[str]]:
    names: defaultdict[Group, set[str]] = defaultdict(set)
    for letter, group in zip(told, groups, strict=True):
        names[group].add(letter.failure)
    return {group: some for group, some in names.items() if len(some) > 1}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seeds", type=int, default=3, help="how often everything is told (default 3)")
    asked.add_argument("--reports", type=Path, help="a CSV file of bug reports")
    asked.add_argument("--own", default="org.apache.hadoop", help="the package of the reports' own classes")
    asked.add_argument("--misses", action="store_true", help="print what is grouped wrongly, a line each")
    given = asked.parse_args()
    told = letters(reports(given.reports, given.own) if given.reports else failures(), given.seeds)
    if given.misses:
        print(*misses(told), sep="\n")
    else:
        show(told)


if __name__ == "__main__":
    main()
