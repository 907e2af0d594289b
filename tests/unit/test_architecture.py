"""The folders' import direction, and the packaging, as tests."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Set
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from support.rows import each_row

from dlq.analyzers import letters
from dlq.core.brokers import REGISTRY

ROOT = Path(__file__).resolve().parents[2]
MAY_IMPORT = {
    "core": set(),
    "connectors": {"core"},
    "archive": {"core"},
    "capture": {"core", "connectors", "archive"},
    "replay": {"core", "connectors", "archive"},
    "analyzers": {"core", "archive"},
    "reports": {"core", "archive", "analyzers", "replay"},
    "operations": {"core", "connectors", "archive", "capture", "replay", "analyzers", "reports"},
    "web": {"core", "archive", "replay", "reports", "operations"},
    "cli": {"core", "connectors", "archive", "capture", "replay", "analyzers", "reports", "operations"},
}
IO = {
    "asyncio", "fileinput", "ftplib", "glob", "http", "io", "mmap", "multiprocessing", "os", "pathlib",
    "selectors", "shutil", "smtplib", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile",
    "threading",
}  # fmt: skip
HEAVY = {"pyspark", "duckdb", "pika", "stomp", "sqlalchemy", "pandas", "pyarrow", "numpy", "jinja2"}

LINES = {
    "core": 4125, "connectors": 34075, "archive": 4620, "capture": 1075, "replay": 8210, "analyzers": 10215,
    "reports": 3725, "operations": 4915, "web": 4105, "cli": 4515, "connectors/activemq": 9635,
    "connectors/amqp10": 1660, "connectors/kafka": 4805, "connectors/rabbitmq": 8380,
    "connectors/rocketmq": 5155, "analyzers/groups": 2805, "analyzers/rules": 4120, "analyzers/spark": 1045,
    "replay/ledger": 1885,
}  # fmt: skip
"""A room or a package has at most so many lines. Who must raise a budget says in the commit what it buys."""


class Source(NamedTuple):
    """What is asked of a file: to parse and walk each of all files once takes two seconds."""

    imports: Collection[str]
    """Every module that it imports, wherever in it; `from x import y` may mean x.y."""
    calls: Set[str]
    """Names of functions that it calls."""
    columns: Set[str]
    """Attributes that it reads, but for those it calls (`headers.keys()`)."""
    constants: Set[object]
    functions: Collection[tuple[str, int]]
    """Name and lines of each."""


@cache
def source(path: Path) -> Source:
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    imports: list[str] = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, path
            imports += (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            imports += (alias.name for alias in node.names)
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    methods = {id(node) for node in called}
    return Source(
        imports,
        {node.id for node in called if isinstance(node, ast.Name)},
        {node.attr for node in nodes if isinstance(node, ast.Attribute) and id(node) not in methods},
        {node.value for node in nodes if isinstance(node, ast.Constant)},
        [(n.name, (n.end_lineno or 0) - n.lineno) for n in nodes if isinstance(n, ast.FunctionDef)],
    )


def rooms_imported_by(path: Path) -> set[str]:
    return {name.split(".")[1] for name in source(path).imports if name.startswith("dlq.")}


def modules(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


@each_row("room", MAY_IMPORT)
def test_arrows_point_one_way(room: str) -> None:
    assert modules(room)
    for path in modules(room):
        assert rooms_imported_by(path) <= MAY_IMPORT[room] | {room}, path.name


@each_row("folder, budget", LINES.items())
def test_nothing_gets_heavier(folder: str, budget: int) -> None:
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in modules(folder)) <= budget


def is_of(name: str, *packages: str) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


PURE = {
    "analyzers/rules": ("dlq.core", "dlq.analyzers.rules"),
    "analyzers/groups": ("dlq.core", "dlq.analyzers"),
}
"""Rooms of plain Python, and what of ours they may import."""


@pytest.mark.parametrize("room", PURE)
def test_what_letters_mean_is_said_in_plain_python_without_io(room: str) -> None:
    libraries = {name for name in sys.stdlib_module_names if name not in IO}
    assert modules(room)
    for path in modules(room):
        for name in source(path).imports:
            assert is_of(name, *PURE[room]) or name.partition(".")[0] in libraries, f"{path.name}: {name}"
        assert source(path).calls.isdisjoint({"open", "print", "input", "exec", "eval", "__import__"}), (
            path.name
        )


def loaded_with(module: str) -> set[str]:
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_rule_and_a_group_load_no_library_of_others() -> None:
    loaded = loaded_with("dlq.analyzers.rules, dlq.analyzers.groups.stores, dlq.analyzers.groups.advice")
    assert loaded & (HEAVY | {"py4j", "dlq.archive"}) == set()


def test_nothing_but_pyspark_needs_numpy() -> None:
    """A quarter of all that an installation would unpack and compile."""
    paths = [path for room in MAY_IMPORT for path in modules(room)]
    assert [path.name for path in paths if "import numpy" in path.read_text(encoding="utf-8")] == []


@each_row("module", ["replays.plans", "replays.applying", "reading.failures", "brokers.pulling", "jsonl"])
def test_no_command_waits_for_numpy(module: str) -> None:
    """pyarrow takes it where it finds it, for 0.2 s of CPU: the archive, which hides it, comes first."""
    assert "numpy" not in loaded_with(f"dlq.operations.{module}")


def test_a_ledger_in_a_file_loads_nothing_that_speaks_to_a_server() -> None:
    assert "sqlalchemy" not in loaded_with("dlq.replay.ledger")
    loaded = loaded_with("dlq.replay.ledger.server")
    assert "sqlalchemy" in loaded
    assert "sqlalchemy.dialects.postgresql" not in loaded


def test_no_rule_reads_a_column_that_letters_are_given_without() -> None:
    unread = set(letters.UNREAD)
    for path in modules("analyzers/rules"):
        mine = {"body"} if path.name == "letter.py" else set()  # which fetches it
        assert source(path).columns & unread == mine, path.name


BROKERS_OF = {
    "analyzers/groups/stores.py": "each kind of store outside is made for one kind of broker",
    "cli/demo/incident.py": "the letters of the demo are such as RabbitMQ leaves",
    "cli/demo/transactions.py": "and RocketMQ",
}
"""Modules that name a kind of broker without being its package or its rules, and why they may."""


def names_a_broker(path: Path) -> bool:
    """Whether a file holds a kind's name, or imports from its package."""
    packages = {".".join(one.split(".")[:3]) for one in REGISTRY.values() if one.count(".") > 2}
    found = source(path)
    return bool(found.constants & REGISTRY.keys()) or any(is_of(name, *packages) for name in found.imports)


def test_a_broker_is_known_in_its_package_and_its_rules_alone() -> None:
    homes = (
        "connectors/rabbitmq/", "connectors/activemq/", "connectors/rocketmq/", "connectors/kafka/",
        "connectors/memory.py",
    )  # fmt: skip
    others = (
        str(path.relative_to(ROOT)) for room in MAY_IMPORT for path in modules(room) if names_a_broker(path)
    )
    found = {name for name in others if not name.startswith((*homes, "analyzers/rules/", "core/brokers.py"))}
    assert found == BROKERS_OF.keys()


NINE = {"link", "read", "send", "prove", "look", "records", "republish", "console", "plugin"}
"""What each broker's package holds, as a module or a folder: a stranger looks for one thing in one place."""
PROTOCOLS = {"activemq": {"stomp", "openwire", "amqp"}, "rabbitmq": {"amqp091", "amqp10", "streams"}}


def names_in(folder: str) -> set[str]:
    found = {path.relative_to(ROOT / folder).parts[0] for path in modules(folder)}
    return {name.removesuffix(".py") for name in found} - {"__init__"}


@each_row("broker", ["activemq", "kafka", "rabbitmq", "rocketmq"])
def test_every_broker_has_the_same_nine_names_and_a_folder_for_each_of_its_protocols(broker: str) -> None:
    protocols = PROTOCOLS.get(broker, set())
    assert names_in(f"connectors/{broker}") == NINE | protocols
    for protocol in protocols:
        assert names_in(f"connectors/{broker}/{protocol}") <= NINE | {"codec"}, protocol


def test_no_folder_but_that_of_the_commands_has_more_than_fifteen_modules_on_one_level() -> None:
    files = [path for room in MAY_IMPORT for path in modules(room) if path.stem != "__init__"]
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in files)
    assert {folder for folder, count in counts.items() if count > 15} == {"cli/commands"}


def test_help_loads_no_heavy_library() -> None:
    code = (
        "import sys; from dlq.cli.app import command_line; dict(command_line().commands); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert HEAVY & set(loaded.split()) == set()


def test_every_room_is_packaged_and_linked_for_type_checkers() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert rooms == set(targets["wheel"]["only-include"])
    assert rooms <= set(targets["sdist"]["only-include"])
    assert rooms == {link.name for link in (ROOT / "typings/dlq").iterdir()}
    assert all((ROOT / room / "py.typed").exists() for room in rooms)
    assert all((path.parent / "__init__.py").exists() for room in rooms for path in modules(room))


def test_nothing_names_a_path_of_somebodys_machine() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in tracked.split():
        text = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b""
        for path in (b"/wor" + b"k/main", b"/ro" + b"ot/", b"../" + b"shared"):
            assert path not in text, name


@pytest.mark.parametrize("room", ["cli", "operations"])
def test_no_function_of_a_command_is_longer_than_a_page(room: str) -> None:
    for path in modules(room):
        for name, lines in source(path).functions:
            assert lines < 50, f"{path.name}: {name}"


def test_a_command_imports_none_but_the_help_of_another() -> None:
    """What several commands do lies in operations; `init` ends as `discover --write` does."""
    shared = {"dlq.cli.commands.discover.look_around", "dlq.cli.commands.pull.NoAnalyze"}
    for path in modules("cli/commands"):
        found = {name for name in source(path).imports if name.startswith("dlq.cli.commands.")}
        assert found <= shared, path.name


def test_an_operation_prints_nothing_and_knows_no_terminal() -> None:
    for path in modules("operations"):
        assert source(path).calls.isdisjoint({"print", "input"}), path.name
        assert not any(is_of(name, "typer", "rich") for name in source(path).imports), path.name


PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
ROWS = re.findall(r"^\| `((?:\w+/)+)` \| (.*) \|$", PAGE, re.MULTILINE)


@each_row(("folder", "text"), ROWS)
def test_the_page_names_modules_that_are_there(folder: str, text: str) -> None:
    """`name`, `name.py`, `name/`, or `name_` of several; and the rooms that one imports."""
    known = {path.stem for path in (ROOT / folder).rglob("*")} | MAY_IMPORT.keys()
    named = re.findall(r"`(\w+)(?:\.py|/)?`", text)
    assert [n for n in named if not any(k == n or (n[-1] == "_" and k.startswith(n)) for k in known)] == []


@each_row("path", sorted(set(re.findall(r"`([\w/]+\.py)`", PAGE))))
def test_the_page_names_files_that_are_there(path: str) -> None:
    files = [str(file) for room in MAY_IMPORT for file in modules(room)]
    assert (ROOT / path).is_file() or any(file.endswith(f"/{path}") for file in files)


PRIVATE = re.compile(
    r"(?<!self)(?<!KafkaError)\._(?!_|AMQ_|replace|asdict|fields|make\b)\w"
    r"|setattr\(\S+\s\"_(?!_)|^from dlq\S+ import .*\b_\w",
    re.M,
)
"""Where a test reads, patches or imports a private name."""


def test_tests_use_ever_fewer_private_names() -> None:
    """What a test has to set is a row of `patience.py` or a public bound: this number only falls."""
    assert sum(len(PRIVATE.findall(path.read_text("utf-8"))) for path in modules("tests")) <= 89
