"""The table of mutations is true: what it changes is there, once, and so is the test that it names."""

from collections import Counter

from mutations import ROOT, Mutation, read_table
from support.rows import each_row

TABLE = read_table()


def is_there(test: str) -> bool:
    """Whether a test is in its file, or in a contract that the class inherits which is named."""
    file, *classes, name = test.split("::")
    own = (ROOT / file).read_text()
    contracts = (path.read_text() for path in (ROOT / "tests" / "support").glob("*contract.py"))
    inherited = any(f"def {name}(" in text for text in contracts) if classes else False
    return all(f"class {each}(" in own for each in classes) and (f"def {name}(" in own or inherited)


def test_each_room_has_six() -> None:
    rooms = {path.parent.name for path in ROOT.glob("*/py.typed")}
    assert Counter(each.file.split("/")[0] for each in TABLE) == dict.fromkeys(rooms, 6)
    assert len({each.breaks for each in TABLE}) == len(TABLE)


@each_row("mutation", TABLE, ids=lambda each: each.breaks)
def test_what_is_changed_is_there_once_and_so_is_the_test_that_catches_it(mutation: Mutation) -> None:
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.old != mutation.new
    assert is_there(mutation.test)
    assert mutation.command != "make test-all"
