"""Records go into an Arrow table and come out of it again, also of a part of it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dlq.archive.schema import to_records, to_table
from dlq.core.record import Record

maps = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.text(max_size=3), max_size=3)


@settings(deadline=None)  # the first array imports what pyarrow needs
@given(st.lists(st.tuples(maps, maps), min_size=1, max_size=5), st.integers(0, 4))
def test_maps_come_back_of_any_names(rows: list[tuple[dict[str, str], dict[str, str]]], first: int) -> None:
    written = [
        Record(str(i), "s", "b", "memory", "q", headers=headers, properties=properties)
        for i, (headers, properties) in enumerate(rows)
    ]
    found = to_records(to_table(written).slice(first))
    assert [(r.record_id, list(r.headers.items()), list(r.properties.items())) for r in found] == [
        (r.record_id, list(r.headers.items()), list(r.properties.items())) for r in written[first:]
    ]
