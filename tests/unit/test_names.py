"""What a function is called says what it does: a verb, or the noun that it returns."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = "core connectors archive capture analyzers replay reports operations cli web"
IDS = {
    "analyzers/rules/custom_headers.py:_enveloped", "analyzers/rules/custom_headers.py:_wrapped",
    "analyzers/rules/rocketmq.py:_finished",
}  # fmt: skip
"""Rules, and what is looked up of a letter once: their names are printed, and stay as they are."""

PARTICIPLES = """
begun bound broken built bought brought caught chosen dead done drawn driven fallen felt found frozen given
gone got grown heard held hidden kept known laid lain led left lent lost made meant met paid said seen sent
shown slept sold spent spoken stood stuck sunk taken taught thought thrown told torn understood won worn
written forgotten"""
"""Those that do not end in -ed, and are no verb as well (read, put, run)."""
OTHER_WORDS = """
i me my we us our you your he him his she her it its they them their this that these those who whom whose
what which each every everything all any some none both either neither one other others another same such
about above across after against along among around at before behind below beneath beside between beyond by
despite down during except for from in inside into like near of off on onto out outside over past per since
through throughout to toward under until up upon with within without via where when why how"""
"""Pronouns, prepositions, and the questions that are asked with one."""
NO_PARTICIPLES = {
    "feed", "need", "seed", "speed", "embed", "exceed", "proceed", "succeed", "string", "mapping", "setting",
    "greeting", "meaning", "packing", "ping", "bring", "sing", "ring",
}  # fmt: skip
VALUES = {"property", "cached_property", "contextmanager", "setter"}
"""What a function is decorated with that stands for a value, or, as `contextlib.closing`, for a block."""


def says_nothing(name: str) -> bool:
    """Whether it is a bare participle, pronoun or preposition."""
    word = name.strip("_")
    listed = {*PARTICIPLES.split(), *OTHER_WORDS.split()}
    is_listed = word in listed or (word.endswith(("ed", "ing")) and word not in NO_PARTICIPLES)
    return "_" not in word and is_listed


def functions(body: list[ast.stmt]) -> Iterator[str]:
    """Of a module and its classes, private ones, too, but for those that stand for a value."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node.body)
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
            decorators = {getattr(one, "id", getattr(one, "attr", "")) for one in node.decorator_list}
            if not decorators & VALUES:
                yield node.name


@cache
def trees() -> dict[str, ast.Module]:
    paths = [path for room in ROOMS.split() for path in (ROOT / room).rglob("*.py")]
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8")) for path in paths}


def found() -> set[str]:
    return {
        f"{path}:{name}"
        for path, tree in trees().items()
        for name in functions(tree.body)
        if says_nothing(name)
    }


def test_no_function_is_called_by_a_bare_participle_pronoun_or_preposition() -> None:
    assert found() == IDS


def begins_with_no_verb(function: ast.FunctionDef) -> bool:
    """Return whether its description begins with an article, a pronoun, a preposition or a question."""
    first = (ast.get_docstring(function) or "Nothing said").split()[0].strip("`.,:()'").lower()
    decorators = {getattr(one, "id", getattr(one, "attr", "")) for one in function.decorator_list}
    return first in {"a", "an", "the", *OTHER_WORDS.split()} and not decorators & VALUES


def test_descriptions_begin_with_a_verb_but_for_those_of_rules() -> None:
    """A rule says in which case it holds."""
    places = {
        path: ast.walk(tree) for path, tree in trees().items() if not path.startswith("analyzers/rules/")
    }
    found = (f"{path}:{n.name}" for path, nodes in places.items() for n in nodes
             if isinstance(n, ast.FunctionDef) and begins_with_no_verb(n))  # fmt: skip
    assert sorted(found) == []
