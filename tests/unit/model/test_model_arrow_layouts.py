"""Rows of all layouts are rearranged, and lists of all layouts cast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from unistream.model.columns.arrow_layouts import cast, filtered, taken
from unistream.model.elements import Batch

TEXTS = ["a", None, "longer than twelve bytes"]
ROWS = [
    pytest.param(pa.int64(), [1, None, 3], id="numbers"),
    pytest.param(pa.string_view(), TEXTS, id="views of texts"),
    pytest.param(pa.binary_view(), [b"a", None, b"longer than twelve bytes"], id="views of bytes"),
    pytest.param(pa.list_(pa.string_view()), [TEXTS, None, []], id="in a list"),
    pytest.param(pa.large_list(pa.string_view()), [TEXTS, None, []], id="in a large list"),
    pytest.param(pa.list_(pa.string_view(), 3), [TEXTS, None, TEXTS], id="in a list of a fixed size"),
    pytest.param(pa.list_view(pa.string_view()), [TEXTS, None, []], id="in a view of a list"),
    pytest.param(
        pa.struct([("n", pa.int8()), pa.field("t", pa.string_view(), nullable=False)]),
        [{"n": 1, "t": "a"}, {"n": None, "t": "b"}, {"n": 2, "t": ""}],
        id="in a struct",
    ),
    pytest.param(pa.map_(pa.string_view(), pa.int8()), [[("a", 1)], None, []], id="in a map"),
    pytest.param(
        pa.struct([("l", pa.list_(pa.map_(pa.string(), pa.string_view())))]),
        [{"l": [[("a", "b")], None]}, None, {"l": []}],
        id="deep inside",
    ),
]


@pytest.mark.parametrize(("kind", "values"), ROWS)
def test_rows_of_every_layout(kind: pa.DataType, values: list[Any]) -> None:
    column = pa.array(values, kind)
    batch = pa.record_batch({"k": [1, 2, 3], "v": column})
    places, there = np.array([2, 0, 1]), np.array([True, False, True])
    moved = [values[place] for place in places]
    for rows in (taken(batch, places), taken(pa.Table.from_batches([batch]), places)):
        assert rows.schema.equals(batch.schema)
        assert rows.to_pylist() == [{"k": place + 1, "v": values[place]} for place in places]
    assert taken(column, places).to_pylist() == moved
    assert filtered(column.slice(1), there[1:]).to_pylist() == values[2:]
    assert filtered(batch, there).column("v").type.equals(kind)
    flowing = Batch(batch, pa.array([10, 20, 30], pa.int64()))
    assert flowing.take(pa.array(places)).records.column("v").to_pylist() == moved
    left = flowing.filter(pa.array([True, None, True]))
    assert left.records.column("v").to_pylist() == [values[0], values[2]]
    assert left.timestamps is not None
    assert left.timestamps.to_pylist() == [10, 30]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.list_view(pa.int64()), pa.list_(pa.int8())),
        (pa.list_(pa.int64()), pa.list_view(pa.int8())),
        (pa.large_list_view(pa.int64()), pa.list_view(pa.int8())),
        (pa.list_view(pa.int64()), pa.list_(pa.int8(), 2)),
    ],
    ids=str,
)
def test_views_of_lists_are_cast_as_lists_are(old: pa.DataType, new: pa.DataType) -> None:
    values = [[1, 2], None, [3, None]]
    made = cast(pa.array(values, old), new)
    made.validate(full=True)
    assert made.type.equals(new)
    assert made.to_pylist() == values
    with pytest.raises(pa.ArrowInvalid, match="not in range"):
        cast(pa.array([[1, 2**40]], old), new)


def test_a_list_of_another_length_than_the_type_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        cast(pa.array([[1]], pa.list_view(pa.int64())), pa.list_(pa.int64(), 2))
