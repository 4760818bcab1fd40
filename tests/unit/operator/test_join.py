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
from unistream.base.limits import MAX_WATERMARK
from unistream.model.elements import Batch, Watermark, WatermarkStatus
from unistream.model.snapshot import ListMode, OperatorState
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


def test_a_fact_gets_the_last_row_of_its_key_however_early_it_comes() -> None:
    with OperatorHarness(join()) as harness:
        facts(harness, "a")
        harness.process(airlines(a="former"), input_index=1)
        facts(harness, "a", start=1)
        harness.process(airlines(a="last"), input_index=1)
        facts(harness, "a", start=2)
        harness.end_input(1, inputs=2)
        facts(harness, "a", start=3)
        assert pairs(harness) == [(0, "last"), (1, "last"), (2, "last"), (3, "last")]


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


def test_the_last_of_equal_dimension_keys_wins() -> None:
    with OperatorHarness(join()) as harness:
        harness.process({"carrier": ["a", "b", "a"], "name": ["old", "B", "new"]}, input_index=1)
        harness.process(airlines(b="B2"), input_index=1)
        harness.end_input(1, inputs=2)
        facts(harness, "a", "b")
        assert pairs(harness) == [(0, "new"), (1, "B2")]


@pytest.mark.parametrize("dictionary", [False, True], ids=["values", "dictionary"])
@pytest.mark.parametrize("plain", [np.float64, np.float32])
def test_floats_that_are_equal_behind_key_by_are_equal_here(plain: type, dictionary: bool) -> None:
    """And a fact keeps the sign and the bits that it has."""

    def floats(*values: float) -> pa.Array:
        array = pa.array(np.array(values, plain))
        return array.dictionary_encode() if dictionary else array

    nan, other_nan = plain(np.nan), -plain(np.nan)
    names = pa.array(["overwritten", "zero", "NaN"])
    dimension = pa.RecordBatch.from_arrays([floats(0.0, -0.0, nan), names], ["f", "name"])
    with OperatorHarness(BroadcastLookupJoin([("f", "f")], dimension.schema, JoinKind.LEFT)) as harness:
        harness.process(dimension, input_index=1)
        harness.end_input(1, inputs=2)
        harness.process(pa.RecordBatch.from_arrays([floats(0.0, -0.0, 1.5, nan, other_nan)], ["f"]))
        found = [(str(row["f"]), row["name"]) for row in harness.rows()]
    assert found == [("0.0", "zero"), ("-0.0", "zero"), ("1.5", None), ("nan", "NaN"), ("nan", "NaN")]


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
