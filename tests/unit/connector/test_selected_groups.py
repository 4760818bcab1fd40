"""Row groups that a selection leaves out have no row that is selected, whatever they have."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unistream.connector.common import selected_groups
from unistream.port.projection import Selection

NAN: Final = float("nan")
GROUP: Final = 3
SCHEMA: Final = pa.schema(
    [
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("t", pa.string()),
        ("at", pa.timestamp("ms")),
        ("b", pa.bool_()),
    ]
)
TABLE: Final = pa.table(
    [
        [1, 2, 3, 4, 5, 6, None, None, 9],
        [5.0, NAN, 5.0, 1.0, 2.0, 3.0, NAN, NAN, NAN],
        list("abcdefghi"),
        [1_000 * day for day in range(1, 10)],
        [False] * 3 + [True] * 6,
    ],
    schema=SCHEMA,
)
N, F, T, AT, B = (pc.field(name) for name in SCHEMA.names)
ALL: Final = [0, 1, 2]


def left(
    path: Path, selection: pc.Expression, columns: str, schema: pa.Schema = SCHEMA, **options: Any
) -> list[int]:
    with pa.OSFile(str(path)) as file:
        parquet = pq.ParquetFile(file, pre_buffer=True)
        return selected_groups(
            file,
            options.pop("groups", range(parquet.num_row_groups)),
            begun=options.pop("begun", False),
            found=parquet.schema_arrow,
            selection=Selection(selection, tuple(columns.split())),
            schema=schema,
            **options,
        )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("groups") / "rows.parquet"
    pq.write_table(TABLE, found, row_group_size=GROUP)
    return found


@pytest.mark.parametrize(
    ("selection", "columns", "groups"),
    [
        (N > 4, "n", [1, 2]),
        (N < 3, "n", [0]),
        (N.is_null(), "n", [2]),
        (N.is_valid() & (N < 4), "n", [0]),
        (T > "f", "t", [2]),
        (T.isin(["b", "h"]), "t", [0, 2]),
        ((N > 5) & (T < "h"), "n t", [1, 2]),
        ((N > 6) | (T == "a"), "n t", [0, 2]),
        (pa.scalar(5_000, pa.timestamp("ms")) <= AT, "at", [1, 2]),
        (B, "b", [1, 2]),
        (~B, "b", [0]),
        (N > 100, "n", []),
        pytest.param(N + 1 > 9, "n", ALL, id="what is computed is not known"),
        pytest.param(F != 5.0, "f", ALL, id="NaN is another number, and in no statistics"),
        pytest.param((N > 4) & F.is_nan(), "n f", ALL, id="nor with another column"),
    ],
    ids=str,
)
def test_which_are_left(path: Path, selection: pc.Expression, columns: str, groups: list[int]) -> None:
    assert left(path, selection, columns) == groups


def test_a_group_of_which_rows_were_returned_stays(path: Path) -> None:
    assert left(path, N > 6, "n", begun=True) == [0, 2]
    assert left(path, N > 6, "n", begun=True, groups=[1, 2]) == [1, 2]


@pytest.mark.parametrize("kind", [pa.int32(), pa.string(), None], ids=str)
def test_a_column_that_is_missing_or_converted_leaves_out_nothing(
    path: Path, kind: pa.DataType | None
) -> None:
    fields = [field for field in SCHEMA if field.name != "n"]
    schema = pa.schema(fields if kind is None else [*fields, ("n", kind)])
    assert left(path, pc.field("n") == (6 if kind == pa.int32() else "6"), "n", schema) == ALL
    with_absent = pa.schema([*SCHEMA, ("absent", pa.int64())])
    assert left(path, pc.field("absent") > 3, "absent", with_absent) == ALL


def test_values_of_partitions_are_known(path: Path) -> None:
    schema, day = pa.schema([*SCHEMA, ("day", pa.string())]), pc.field("day")
    constants = {"day": pa.scalar("monday")}
    assert left(path, (day == "monday") & (N > 4), "day n", schema, constants=constants) == [1, 2]
    assert left(path, (day == "sunday") | (N > 6), "day n", schema, constants=constants) == [2]
    assert left(path, day == "sunday", "day", schema, constants=constants) == []
    unknown = {"day": pa.scalar(None, pa.string())}
    assert left(path, day == "sunday", "day", schema, constants=unknown) == ALL, "null is no value"


@pytest.mark.parametrize(
    ("values", "selection"),
    [
        (pa.array([{"x": 5.0}, {"x": NAN}, {"x": 5.0}]), pc.field("v", "x") != 5.0),
        (pa.array([5.0, NAN, 5.0]).dictionary_encode(), pc.field("v") != 5.0),
        (pa.array([5.0, NAN, 5.0], pa.float32()), pc.field("v") != 5.0),
    ],
    ids=["in a struct", "in a dictionary", "of 32 bits"],
)
def test_nan_is_selected_wherever_it_is(tmp_path: Path, values: pa.Array, selection: pc.Expression) -> None:
    table = pa.table({"v": values})
    pq.write_table(table, tmp_path / "rows.parquet")
    assert left(tmp_path / "rows.parquet", selection, "v", table.schema) == [0]


NUMBERS = st.lists(st.none() | st.integers(-5, 5), min_size=1, max_size=12)
TEXTS = st.none() | st.sampled_from(["", "a", "b", "\u00e4", "z" * 40])


@st.composite
def selections(draw: st.DrawFn, depth: int = 2) -> pc.Expression:
    if depth and draw(st.booleans()):
        one, other = draw(selections(depth - 1)), draw(selections(depth - 1))
        return draw(st.sampled_from([one & other, one | other, ~one]))
    name, value = draw(
        st.one_of(
            st.tuples(st.just("n"), st.integers(-6, 6)),
            st.tuples(st.just("t"), TEXTS.filter(lambda text: text is not None)),
        )
    )
    column = pc.field(name)
    return draw(
        st.sampled_from(
            [
                column == value,
                column != value,
                column < value,
                column >= value,
                column.isin([value]),
                column.is_null(),
                column.is_valid(),
            ]
        )
    )


@given(numbers=NUMBERS, texts=st.data(), selection=selections(), size=st.integers(1, 5))
def test_no_selected_row_is_in_what_is_left_out(
    tmp_path_factory: pytest.TempPathFactory,
    numbers: list[int | None],
    texts: st.DataObject,
    selection: pc.Expression,
    size: int,
) -> None:
    words = [texts.draw(TEXTS) for _ in numbers]
    table = pa.table({"n": pa.array(numbers, pa.int64()), "t": pa.array(words, pa.string())})
    path = tmp_path_factory.mktemp("random") / "rows.parquet"
    pq.write_table(table, path, row_group_size=size)
    kept = left(path, selection, "n t", table.schema)
    for group in range(-(-len(numbers) // size)):
        if group not in kept:
            assert table.slice(group * size, size).filter(selection).num_rows == 0
