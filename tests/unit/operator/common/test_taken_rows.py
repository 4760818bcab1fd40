"""Rows are taken whole or not at all, in columns that go with their last user."""

from __future__ import annotations

import gc
import weakref
from collections import UserDict
from typing import Any

import pyarrow as pa
import pytest

from unistream.model.columns.column_forms import ValueRefused
from unistream.operator.common import BaseOperator, CurrentRow, RowSchema
from unistream.operator.process.context import Collector

SCHEMA = pa.schema([("n", pa.int64()), ("tags", pa.list_(pa.string()))])
NESTED = pa.schema([("n", pa.int64()), ("at", pa.struct({"x": pa.int64()}))])


class Torn(UserDict[str, int]):
    def __iter__(self) -> Any:
        raise OSError("torn")


@pytest.mark.parametrize("schema", [pytest.param(NESTED, id="declared"), pytest.param(None, id="inferred")])
def test_a_function_may_go_on_after_a_row_that_could_not_be_copied(schema: pa.Schema | None) -> None:
    rows, place = RowSchema(schema), CurrentRow()
    taken = rows.taken(place)
    for place.position, at in enumerate([{"x": 1}, Torn(x=2), {"x": 3}]):
        try:
            taken.take({"n": place.position, "at": at})
        except OSError:
            assert type(at) is Torn
    built = rows.build(BaseOperator(), "f returned", taken, taken.parents)
    assert built.to_pylist() == [{"n": 0, "at": {"x": 1}}, {"n": 2, "at": {"x": 3}}]
    assert taken.parents == [0, 2]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["a b", "", "{x}", "'", '"', "\\", "\n", "{{", "ä", "v0", "row", "None"], id="odd"),
        pytest.param(["' + str(1/0) + '", "v0]; exit(); row['", "\n        exit()"], id="code"),
        pytest.param(["fitted", "place", "note", "append0", "copy0", "take", "make"], id="of the code"),
    ],
)
@pytest.mark.parametrize("place", [None, CurrentRow()], ids=["not noted", "noted"])
def test_a_name_is_only_a_name(names: list[str], place: CurrentRow | None) -> None:
    rows = RowSchema(pa.schema([(name, pa.list_(pa.int64())) for name in names]))
    taken = rows.taken(place)
    row = {name: [position] for position, name in enumerate(names)}
    taken.take(row)
    assert rows.batch(taken).to_pylist() == [row]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([{"n": 1, "tags": []}, {"n": 1}], r"columns \(n\), wanted \(n, tags\)"),
        ([{"n": 1, "tags": []}, {"n": 1, "tag": []}], r"columns \(n, tag\), wanted \(n, tags\)"),
        ([{"n": 1, "tags": []}, None, {"x": 1}], r"None \(NoneType\), wanted a dict of columns"),
    ],
    ids=["fewer", "another", "none"],
)
def test_the_first_row_that_does_not_match_is_told(given: list[Any], reason: str) -> None:
    rows = RowSchema(SCHEMA)
    taken = rows.taken()
    for row in given:
        taken.take(row)
    with pytest.raises(ValueRefused, match=reason) as refused:
        rows.batch(taken)
    assert (refused.value.position, len(taken)) == (1, len(given))
    taken.clear()
    taken.take({"n": 5, "tags": None})
    assert rows.batch(taken).to_pylist() == [{"n": 5, "tags": None}]


@pytest.mark.parametrize("schema", [pytest.param(SCHEMA, id="declared"), pytest.param(None, id="inferred")])
def test_a_collector_needs_no_collector_of_garbage(schema: pa.Schema | None) -> None:
    """Its columns would pile up until that runs."""
    gc.disable()
    try:
        out = Collector({None: RowSchema(schema)})
        out.emit({"n": 1, "tags": ["a"]})
        out.emit_side("late", {"n": 1})
        gone = weakref.ref(out)
        del out
        assert gone() is None
    finally:
        gc.enable()
