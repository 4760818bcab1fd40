"""The lookup join: facts wait for the dimension, precede the watermark, and survive a restore."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError, CorruptSnapshot, Transient, UserCodeError
from unistream.base.ids import CheckpointId
from unistream.base.limits import BATCH_ROWS_MAX, MAX_WATERMARK
from unistream.model.elements import Batch, Watermark, WatermarkStatus
from unistream.model.snapshot import ListMode, OperatorState
from unistream.operator import lookup_table
from unistream.operator.join import DIMENSION_STATE, WAITING_STATE, BroadcastLookupJoin, JoinKind
from unistream.testing.harness import OperatorHarness, restore_state

AIRLINES = pa.schema([("carrier", pa.string()), ("name", pa.string())])


def join(how: str = "inner") -> BroadcastLookupJoin:
    return BroadcastLookupJoin([("carrier", "carrier")], AIRLINES, JoinKind(how))


def airlines(**names: str) -> Mapping[str, list[Any]]:
    return {"carrier": list(names), "name": list(names.values())}


def pairs(harness: OperatorHarness) -> list[tuple[Any, Any]]:
    return [(row["n"], row["name"]) for row in harness.rows()]


def facts(harness: OperatorHarness, *carriers: str | None, start: int = 0) -> None:
    numbers = list(range(start, start + len(carriers)))
    carrier = pa.array(carriers, pa.string())
    harness.process(pa.RecordBatch.from_pydict({"n": numbers, "carrier": carrier}), numbers)


@pytest.mark.parametrize(
    ("how", "after"),
    [
        pytest.param("inner", [(0, "A"), (2, "B")], id="inner drops what has no match"),
        pytest.param("left", [(0, "A"), (1, None), (2, "B"), (3, None)], id="left keeps it with nulls"),
    ],
)
def test_facts_wait_until_the_dimension_ends(how: str, after: list[Any]) -> None:
    with OperatorHarness(join(how)) as harness:
        facts(harness, "a", "x", "b", None)
        harness.process(airlines(a="A"), input_index=1)
        harness.process(airlines(b="B"), input_index=1)
        assert pairs(harness) == []
        harness.end_input(1, inputs=2)
        assert pairs(harness) == after
        assert set(harness.timestamps()) == {n for n, _ in after}


def test_a_fact_meets_all_rows_of_its_key_however_early_it_comes() -> None:
    with OperatorHarness(join()) as harness:
        facts(harness, "a")
        harness.process(airlines(a="former"), input_index=1)
        facts(harness, "a", start=1)
        harness.process(airlines(a="last"), input_index=1)
        facts(harness, "a", start=2)
        harness.end_input(1, inputs=2)
        facts(harness, "a", start=3)
        assert sorted(pairs(harness)) == [(n, name) for n in range(4) for name in ("former", "last")]


def test_released_facts_precede_the_watermark_that_the_end_of_the_dimension_lets_through() -> None:
    """Order of calls as recorded of Flink: MAX_WATERMARK(1), combined watermark, endInput(1)."""
    with OperatorHarness(join("left")) as harness:
        facts(harness, "x")
        harness.watermark(100, 0, inputs=2)
        assert harness.output.elements == []
        harness.watermark(MAX_WATERMARK, 1, inputs=2)
        assert harness.output.elements == [], "rows of the dimension may still come"
        harness.operator.end_input(1)
        batch, watermark = harness.output.elements
        assert isinstance(batch, Batch)
        assert watermark == Watermark(100)
        harness.operator.end_input(1)
        assert len(harness.output.elements) == 2
        harness.watermark(200, 0, inputs=2)
        assert harness.output.elements[2:] == [Watermark(200)]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_rows_that_the_dimension_emits_in_finish_come_behind_its_last_watermark_and_count(how: str) -> None:
    with OperatorHarness(join(how)) as harness:
        facts(harness, "x")
        harness.watermark(100, 0, inputs=2)
        harness.watermark(MAX_WATERMARK, 1, inputs=2)
        facts(harness, "x", start=1)
        harness.process(airlines(x="X"), input_index=1)
        harness.operator.end_input(1)
        assert pairs(harness) == [(0, "X"), (1, "X")]
        assert harness.output.elements[-1] == Watermark(100)


def test_without_a_watermark_the_end_of_the_dimension_releases() -> None:
    with OperatorHarness(join("left")) as harness:
        facts(harness, "x")
        harness.end_input(1, inputs=2)
        assert pairs(harness) == [(0, None)]


VERSIONED = pa.schema([("k", pa.string()), ("at", pa.timestamp("us")), ("name", pa.string())])
VERSIONS = [
    {"k": "a", "at": 2, "name": "A2"},
    {"k": "a", "at": 1, "name": "A1"},
    {"k": "b", "at": None, "name": "B"},
    {"k": "c", "at": None, "name": "C"},
    {"k": "c", "at": -5, "name": "C-5"},
    {"k": None, "at": 9, "name": "null"},
    {"k": "d", "at": 7, "name": "D7"},
    {"k": "d", "at": 7, "name": "D7 too"},
]
ALL = [("a", "A1"), ("a", "A2"), ("b", "B"), ("c", "C"), ("c", "C-5"), ("d", "D7"), ("d", "D7 too")]
LATEST = [("a", "A2"), ("b", "B"), ("c", "C-5"), ("d", "D7"), ("d", "D7 too")]


@pytest.mark.parametrize(
    ("how", "latest_by", "want"),
    [
        pytest.param("inner", None, ALL, id="all matches, as in SQL"),
        pytest.param("left", None, [*ALL, ("x", None), (None, None)], id="all matches, and nulls"),
        pytest.param("inner", "at", LATEST, id="the newest version, all rows that have it"),
        pytest.param("left", "at", [*LATEST, ("x", None), (None, None)], id="the newest version, and nulls"),
    ],
)
@pytest.mark.parametrize("ways", [1, 3], ids=["one channel", "rows of the dimension in another order"])
def test_equal_keys_of_the_dimension(
    how: str, latest_by: str | None, want: list[Any], ways: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old versions are dropped at the end or, in other order, while rows come."""
    monkeypatch.setattr(lookup_table, "_PRUNED_ROWS_MIN", 0 if ways > 1 else 10**9)
    operator = BroadcastLookupJoin([("k", "k")], VERSIONED, JoinKind(how), latest_by=latest_by)
    rows = [row for way in range(ways) for row in VERSIONS[way::ways]]
    with OperatorHarness(operator) as harness:
        for row in rows:
            harness.process(pa.RecordBatch.from_pylist([row], schema=VERSIONED), input_index=1)
        harness.end_input(1, inputs=2)
        keys = pa.array(["a", "b", "c", "d", "x", None])
        harness.process(pa.RecordBatch.from_arrays([keys], ["k"]), list(range(6)))
        assert sorted(((row["k"], row["name"]) for row in harness.rows()), key=repr) == sorted(want, key=repr)
        order = "abcdx"
        assert harness.timestamps() == [
            order.index(row["k"]) if row["k"] is not None else 5 for row in harness.rows()
        ], "each row has the time of its fact"


def test_many_matches_leave_in_pieces_and_there_is_a_wait_between_them() -> None:
    seen: list[int] = []
    many = 3 * BATCH_ROWS_MAX + 1
    with OperatorHarness(
        join("left"), await_room=lambda: seen.append(len(harness.output.elements))
    ) as harness:
        names = {"carrier": ["a"] * many, "name": [str(n) for n in range(many)]}
        harness.process(names, input_index=1)
        harness.end_input(1, inputs=2)
        facts(harness, "a", "x")
        assert [batch.num_rows for batch in harness.batches()] == [*[BATCH_ROWS_MAX] * 3, 2]
        assert seen == [1, 2, 3]
        assert [name for _, name in pairs(harness)] == [*names["name"], None]


I32, I64, U64 = pa.int32(), pa.int64(), pa.uint64()


@pytest.mark.parametrize(
    ("facts_type", "fact_keys", "type_", "keys", "want"),
    [
        pytest.param(I32, [1, 2, 3], I64, [1, 2, 2**40], [1, 2], id="a dimension beyond the narrower type"),
        pytest.param(I64, [1, 2**40, 2**32 + 1], I32, [1, 2], [1], id="facts beyond the narrower type"),
        pytest.param(I64, [-1, 2**63 - 1], U64, [2**64 - 1, 2**63 - 1], [2**63 - 1], id="signed, unsigned"),
        pytest.param(U64, [2**64 - 1, 2**63, 7], I64, [-1, -(2**63), 7], [7], id="unsigned, signed"),
        pytest.param(pa.int8(), [-1, 5], pa.uint8(), [255, 5], [5], id="bytes"),
        pytest.param(pa.string(), ["a", "b"], pa.large_string(), ["b"], ["b"], id="texts"),
        pytest.param(pa.large_string(), ["a"], pa.string_view(), ["a"], ["a"], id="a view of texts"),
        pytest.param(pa.binary(), [b"a"], pa.large_binary(), [b"a"], [b"a"], id="bytes of two layouts"),
        pytest.param(pa.dictionary(pa.int8(), I32), [1, 2], I64, [2, 2**40], [2], id="a dictionary"),
        pytest.param(I32, [1, 2], pa.dictionary(pa.int8(), I64), [2, 2**40], [2], id="a dictionary's keys"),
        pytest.param(pa.null(), [None], I64, [1], [], id="nothing but nulls"),
    ],
)
def test_keys_of_types_that_meet(
    facts_type: pa.DataType, fact_keys: list[Any], type_: pa.DataType, keys: list[Any], want: list[Any]
) -> None:
    """By value, whatever the width; nothing is cut to fit. Alone, and as one of two columns."""
    ones = {"one": [1] * len(keys)}
    dimension = pa.record_batch({"k": pa.array(keys, type_), **ones, "found": ["yes"] * len(keys)})
    rows = pa.record_batch({"k": pa.array(fact_keys, facts_type), "one": [1] * len(fact_keys)})
    for pairs in ([("k", "k")], [("k", "k"), ("one", "one")]):
        given = dimension if len(pairs) == 2 else dimension.drop_columns(["one"])
        with OperatorHarness(BroadcastLookupJoin(pairs, given.schema, JoinKind.INNER)) as harness:
            harness.process(given, input_index=1)
            harness.end_input(1, inputs=2)
            harness.process(rows)
            assert [row["k"] for row in harness.rows()] == want
            assert {batch.records.schema.field("k").type for batch in harness.batches()} <= {facts_type}


@pytest.mark.parametrize(
    ("facts_type", "type_"),
    [
        pytest.param(pa.string(), I64, id="text and number"),
        pytest.param(pa.float64(), I64, id="float and integer"),
        pytest.param(pa.timestamp("s"), pa.timestamp("us"), id="times of two units"),
        pytest.param(pa.decimal128(9, 2), pa.decimal128(12, 2), id="decimals of two precisions"),
    ],
)
def test_keys_that_are_never_equal_are_refused_where_the_columns_of_facts_were_not_known(
    facts_type: pa.DataType, type_: pa.DataType
) -> None:
    dimension = pa.schema([("k", type_)])
    with OperatorHarness(BroadcastLookupJoin([("k", "k")], dimension, JoinKind.INNER)) as harness:
        harness.end_input(1, inputs=2)
        with pytest.raises(UserCodeError, match="values of different types are never equal; cast one before"):
            harness.process(pa.record_batch({"k": pa.array([], facts_type)}))


@pytest.mark.parametrize("columns", [2, 8, 9, 12])
def test_many_columns_of_many_values_meet_only_if_all_of_them_are_equal(columns: int) -> None:
    """256 values in each of nine columns are more combinations than int64 has numbers."""
    count, names = 256, [f"k{n}" for n in range(columns)]
    dimension = pa.record_batch({**{name: list(range(count)) for name in names}, "row": list(range(count))})
    with OperatorHarness(
        BroadcastLookupJoin([(name, name) for name in names], dimension.schema, JoinKind.INNER)
    ) as harness:
        harness.process(dimension, input_index=1)
        harness.end_input(1, inputs=2)
        others = {
            name: [(n + 1) % count for n in range(count)] if name == "k0" else range(count) for name in names
        }
        harness.process(pa.record_batch({name: pa.array(values) for name, values in others.items()}))
        assert harness.rows() == []
        harness.process(dimension.select(names).slice(3, 2))
        assert [row["row"] for row in harness.rows()] == [3, 4]


@pytest.mark.parametrize("dictionary", [False, True], ids=["values", "dictionary"])
@pytest.mark.parametrize("plain", [np.float64, np.float32])
def test_floats_that_are_equal_behind_key_by_are_equal_here(plain: type, dictionary: bool) -> None:
    """And a fact keeps the sign and the bits that it has."""

    def floats(*values: float) -> pa.Array:
        array = pa.array(np.array(values, plain))
        return array.dictionary_encode() if dictionary else array

    nan, other_nan = plain(np.nan), -plain(np.nan)
    names = pa.array(["zero", "-zero", "NaN"])
    dimension = pa.RecordBatch.from_arrays([floats(0.0, -0.0, nan), names], ["f", "name"])
    with OperatorHarness(BroadcastLookupJoin([("f", "f")], dimension.schema, JoinKind.LEFT)) as harness:
        harness.process(dimension, input_index=1)
        harness.end_input(1, inputs=2)
        harness.process(pa.RecordBatch.from_arrays([floats(0.0, -0.0, 1.5, nan, other_nan)], ["f"]))
        found = [(str(row["f"]), row["name"]) for row in harness.rows()]
    zeros = [(zero, name) for zero in ("0.0", "-0.0") for name in ("zero", "-zero")]
    assert found == [*zeros, ("1.5", None), ("nan", "NaN"), ("nan", "NaN")]


def test_the_schema_is_the_same_before_and_after_the_dimension_is_known() -> None:
    with OperatorHarness(join("left")) as harness:
        harness.end_input(1, inputs=2)
        facts(harness, "a")
        (batch,) = harness.batches()
        assert batch.records.schema.field("name").type == pa.string()


def test_keys_of_several_columns() -> None:
    dimension = pa.schema([("x", pa.string()), ("y", pa.int64()), ("v", pa.int64())])
    operator = BroadcastLookupJoin([("a", "x"), ("b", "y")], dimension, JoinKind.LEFT)
    with OperatorHarness(operator) as harness:
        harness.process({"x": ["p", "p", "q"], "y": [1, 2, 1], "v": [11, 12, 21]}, input_index=1)
        harness.end_input(1, inputs=2)
        harness.process(
            pa.RecordBatch.from_pydict(
                {"a": ["p", "q", "q", None, "p"], "b": pa.array([2, 1, 2, 1, None], pa.int32())}
            )
        )
        assert [row["v"] for row in harness.rows()] == [12, 21, None, None, None]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_waiting_facts_and_the_dimension_survive_a_restore(parallelism: int) -> None:
    with OperatorHarness(join("left")) as before:
        before.process(airlines(a="A"), input_index=1)
        for start, carrier in enumerate(["x", "b", "y"]):
            facts(before, carrier, start=start)
        snapshot = before.snapshot(1)
    assert snapshot.lists[WAITING_STATE].mode is ListMode.SPLIT
    assert snapshot.lists[DIMENSION_STATE].mode is ListMode.BROADCAST
    found = []
    for index in range(parallelism):
        state = restore_state([snapshot], 1, index=index, parallelism=parallelism)
        with OperatorHarness(join("left"), state=state, index=index, parallelism=parallelism) as after:
            after.process(airlines(b="B"), input_index=1)
            after.end_input(1, inputs=2)
            after.end_input(1, inputs=2)  # comes again when the producer had finished before
            facts(after, "a", start=10 + index)
            found += pairs(after)
            assert after.timestamps() == [n for n, _ in pairs(after)]
    assert sorted(found) == [(0, None), (1, "B"), (2, None), *((10 + i, "A") for i in range(parallelism))]


def test_a_restored_dimension_with_other_columns_is_refused() -> None:
    with OperatorHarness(join()) as before:
        before.process(airlines(a="A"), input_index=1)
        state = restore_state([before.snapshot(1)], 1)
    other = BroadcastLookupJoin(
        [("carrier", "carrier")], AIRLINES.append(pa.field("x", pa.int8())), JoinKind.INNER
    )
    with pytest.raises(ConfigError, match="give it another uid"):
        OperatorHarness(other, state=state).open()


def test_damaged_state_is_refused() -> None:
    state = OperatorState(checkpoint_id=CheckpointId(1), lists={WAITING_STATE: [b"garbage"]})
    with pytest.raises(CorruptSnapshot):
        OperatorHarness(join(), state=state).open()


def test_facts_without_the_key_are_named() -> None:
    with (
        OperatorHarness(join()) as harness,
        pytest.raises(UserCodeError, match="no join key 'carrier' among n"),
    ):
        harness.process({"n": [1]})


def test_facts_that_wait_leave_before_the_join_is_idle() -> None:
    """The dimension has ended and the facts are idle: consumers do not wait for this task any more."""
    with OperatorHarness(join("left")) as harness:
        facts(harness, "x")
        harness.idle()
        assert harness.output.elements == []
        harness.operator.end_input(1)
        batch, status = harness.output.elements
        assert isinstance(batch, Batch)
        assert status == WatermarkStatus(idle=True)
        harness.idle(False)
        assert harness.output.elements[2:] == [WatermarkStatus(idle=False)]


# --- more facts than memory -----------------------------------------------------------------------


def _many(harness: OperatorHarness, count: int, start: int = 0) -> None:
    """`count` facts of the carriers a, b and x in turn."""
    facts(harness, *(("a", "b", "x")[n % 3] for n in range(start, start + count)), start=start)


def test_facts_above_the_budget_wait_in_a_file_and_keep_their_order() -> None:
    operator = join("left")
    with OperatorHarness(operator, managed_memory_bytes=20_000) as harness:
        for start in range(0, 30_000, 1_000):
            _many(harness, 1_000, start)
        assert operator._waiting.has_spilled
        harness.process(airlines(a="A"), input_index=1)
        _many(harness, 1_000, 30_000)
        assert harness.output.elements == []  # those with a known key must not overtake those in the file
        harness.process(airlines(b="B"), input_index=1)
        harness.end_input(1, inputs=2)
        assert pairs(harness) == [(n, ("A", "B", None)[n % 3]) for n in range(31_000)]
        _many(harness, 3, 31_000)
        assert pairs(harness)[-3:] == [(31_000, "B"), (31_001, None), (31_002, "A")]


def test_facts_in_the_file_are_part_of_a_checkpoint() -> None:
    with OperatorHarness(join("left"), managed_memory_bytes=20_000) as harness:
        for start in range(0, 10_000, 1_000):
            _many(harness, 1_000, start)
        harness.process(airlines(a="A"), input_index=1)
        snapshot = harness.operator.snapshot_state(CheckpointId(1))
        _many(harness, 1_000, 10_000)  # behind the barrier
        harness.process(airlines(b="B"), input_index=1)
        harness.end_input(1, inputs=2)
        assert len(pairs(harness)) == 11_000
    state = restore_state([snapshot], 1)  # it outlives the operator: it is written in the background
    with OperatorHarness(join("left"), state=state, managed_memory_bytes=20_000) as restored:
        assert restored.operator._waiting.has_spilled
        restored.process(airlines(b="B2"), input_index=1)
        restored.end_input(1, inputs=2)
        assert pairs(restored) == [(n, ("A", "B2", None)[n % 3]) for n in range(10_000)]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere")
    with (
        OperatorHarness(join("left"), managed_memory_bytes=0, tmp_dir=missing) as harness,
        pytest.raises(Transient, match=r"nowhere \(io.tmp.dirs\)"),
    ):
        facts(harness, "a")


def test_the_wait_for_room_comes_between_the_pieces_of_a_release() -> None:
    seen: list[int] = []
    with OperatorHarness(
        join("left"), await_room=lambda: seen.append(len(harness.output.elements))
    ) as harness:
        for start in range(0, 5):
            facts(harness, "x", start=start)
        harness.end_input(1, inputs=2)
    assert seen == [1, 2, 3, 4, 5]
