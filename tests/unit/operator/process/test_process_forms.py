"""Functions per batch, without keys, and next to a broadcast stream; declared state of each."""

from __future__ import annotations

from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import unistream as us
from unistream.base.errors import ConfigError, UserCodeError
from unistream.model.columns.key_codes import distinct
from unistream.model.snapshot import ListMode, OperatorState
from unistream.operator.process import (
    BroadcastProcessOperator,
    KeyedBatchOperator,
    KeyedProcessOperator,
    ProcessOperator,
)
from unistream.testing.harness import OperatorHarness, restore_state

Row = dict[str, Any]

# --- per batch ------------------------------------------------------------------------------------


class Totals(us.KeyedBatchFunction):
    total = us.ValueStateDescriptor("total", pa.int64())

    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        total = context.column(self.total)
        numbers = batch.records.column("n").to_numpy()
        added = np.bincount(batch.groups, numbers, minlength=batch.keys.num_rows).astype(np.int64)
        new = pc.add(total.get().fill_null(0), pa.array(added))
        total.put(new)
        out.emit(batch.keys.append_column("total", new))


@pytest.mark.parametrize("keys", [["k"], ["k", "m"]], ids=["one key column", "two"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_columns_belong_to_keys_and_move_with_their_key_group(keys: list[str], parallelism: int) -> None:
    def operator() -> KeyedBatchOperator:
        made: KeyedBatchOperator = cloudpickle.loads(cloudpickle.dumps(KeyedBatchOperator(Totals(), keys)))
        return made

    rows = {"k": ["a", None, "a", "b", "a"], "m": [1, 1, 2, 1, 1], "n": [1, 2, 3, 4, 5]}
    with OperatorHarness(operator()) as before:
        before.process(rows)
        first = {tuple(row[key] for key in keys): row["total"] for row in before.rows()}
        snapshot = before.snapshot(1)
    expected = (
        {("a",): 9, (None,): 2, ("b",): 4}
        if len(keys) == 1
        else {("a", 1): 6, (None, 1): 2, ("a", 2): 3, ("b", 1): 4}
    )
    assert first == expected
    later: dict[Any, int] = {}
    for index in range(parallelism):
        state = restore_state([snapshot], 1, index=index, parallelism=parallelism)
        with OperatorHarness(operator(), state=state, index=index, parallelism=parallelism) as after:
            mine = {key for (key,) in [(k,) for k in after.context.state.keys("total")]}
            table = pa.Table.from_pydict(rows)
            kept = [tuple(row[key] for key in keys) in mine for row in table.to_pylist()]
            if any(kept):
                after.process(table.filter(pa.array(kept)).combine_chunks().to_batches()[0])
            later |= {tuple(row[key] for key in keys): row["total"] for row in after.rows()}
    assert later == {key: 2 * total for key, total in expected.items()}


@pytest.mark.parametrize(
    ("columns", "keys", "groups"),
    [
        ({"k": ["b", "a", "b"]}, [{"k": "b"}, {"k": "a"}], [0, 1, 0]),
        ({"k": pa.array(["b", "a", "b"]).dictionary_encode()}, [{"k": "b"}, {"k": "a"}], [0, 1, 0]),
        ({"k": [None, 1, None]}, [{"k": None}, {"k": 1}], [0, 1, 0]),
        (
            {"k": [1, 1, 2, 1], "m": ["x", None, "x", "x"]},
            [{"k": 1, "m": "x"}, {"k": 1, "m": None}, {"k": 2, "m": "x"}],
            [0, 1, 2, 0],
        ),
    ],
    ids=["text", "dictionary", "null", "two columns"],
)
def test_distinct_keys_come_in_the_order_of_their_first_row(
    columns: dict[str, Any], keys: list[Row], groups: list[int]
) -> None:
    found, which = distinct(pa.record_batch(columns))
    assert (found.to_pylist(), which.tolist()) == (keys, groups)


class ColumnInOpen(Totals):
    def open(self, context: us.BatchContext) -> None:
        context.column(us.ValueStateDescriptor("s", pa.int64())).get()


class ObjectsInBatch(Totals):
    s = us.ListStateDescriptor("s", pa.binary(), options=us.StateOptions(pickled=True))


class WrongGroups(us.KeyedBatchFunction):
    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        context.column(us.ListStateDescriptor("s", pa.int64())).add([1], [1])


class WrongOutput(us.KeyedBatchFunction):
    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        out.emit(batch.records.to_pylist())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "error", "reported"),
    [
        (
            ColumnInOpen(),
            UserCodeError,
            r"function 'ColumnInOpen', open raised RuntimeError: .*process_batch",
        ),
        (ObjectsInBatch(), ConfigError, r"state 's' of function 'ObjectsInBatch' is pickled; functions per"),
        (WrongGroups(), UserCodeError, r"ValueError: groups are positions in the 1 keys of the batch"),
        (us.KeyedBatchFunction(), ConfigError, "must define process_batch"),
        (WrongOutput(), UserCodeError, "emit takes a pyarrow.RecordBatch, not list"),
    ],
)
def test_what_a_function_per_batch_cannot_do(function: Any, error: type[Exception], reported: str) -> None:
    with (
        pytest.raises(error, match=reported),
        OperatorHarness(KeyedBatchOperator(function, ["k"])) as harness,
    ):
        harness.process({"k": [1]})


# --- per row: declared state, a changed declaration -----------------------------------------------


class Counts(us.KeyedProcessFunction):
    seen = us.ValueStateDescriptor("seen", pa.int64())

    def __init__(self, more: str = "more") -> None:
        self.more = us.MapStateDescriptor(more, pa.int64(), key_type=pa.string())

    def process_element(self, row: Row, context: us.ProcessContext, out: us.Collector) -> None:
        seen = context.state(self.seen)
        seen.update((seen.value() or 0) + 1)
        context.state(self.more).put(str(seen.value()), 1)
        out.emit({"k": context.key, "seen": seen.value()})


class WiderCounts(Counts):
    seen = us.ValueStateDescriptor("seen", pa.string())


def test_declared_state_is_known_before_anything_runs() -> None:
    schema = pa.schema([("k", pa.dictionary(pa.int32(), pa.string()))])
    operator = KeyedProcessOperator(Counts("other"), ["k"], key_schema=schema)
    assert [descriptor.name for descriptor in operator.declared_states()] == ["seen", "other"]
    assert operator.declared_keys() == pa.schema([("k", pa.string())])


def test_a_changed_declaration_is_refused_before_the_first_row() -> None:
    with OperatorHarness(KeyedProcessOperator(Counts(), ["k"])) as before:
        before.process({"k": [1, 2]})
        snapshot = before.snapshot(1)
    state = restore_state([snapshot], 1)
    with pytest.raises(ConfigError, match=r"operator 'operator': state 'seen' was stored with value int64"):
        OperatorHarness(KeyedProcessOperator(WiderCounts(), ["k"]), state=state).open()
    with pytest.raises(ConfigError, match=r"operator 'operator': the key columns are \(k string\)"):
        OperatorHarness(
            KeyedProcessOperator(Counts(), ["k"], key_schema=pa.schema([("k", pa.string())])), state=state
        ).open()


# --- without keys ---------------------------------------------------------------------------------


class Holds(us.ProcessFunction):
    """Keeps rows back and gives them all at the end; `own` is only brought up to date for a snapshot."""

    def __init__(self, mode: ListMode) -> None:
        self.mode = mode
        self.seen = 0

    def open(self, context: us.FunctionContext) -> None:
        self.held = context.operator_state("held", pa.timestamp("ms"), self.mode)
        self.own = context.operator_state("own", pa.int64())
        self.seen = sum(self.own.get())

    def process_element(self, row: Row, context: us.FunctionContext, out: us.Collector) -> None:
        self.held.add(row["at"])
        self.seen += 1

    def snapshot(self, context: us.FunctionContext) -> None:
        self.own.update([self.seen])

    def finish(self, context: us.FunctionContext, out: us.Collector) -> None:
        for at in self.held.get():
            out.emit({"at": at, "seen": self.seen})


@pytest.mark.parametrize(
    ("mode", "of_each"),
    [
        pytest.param(ListMode.SPLIT, [[0, 1], [2, 3]], id="split: each element to one subtask"),
        pytest.param(ListMode.UNION, [[0, 1, 2, 3]] * 2, id="union: all to all"),
        pytest.param(ListMode.BROADCAST, [[0, 1], [2, 3]], id="broadcast: the list of one subtask"),
    ],
)
def test_lists_are_dealt_out_by_their_mode(mode: ListMode, of_each: list[list[int]]) -> None:
    times = pa.array([0, 1, 2, 3], pa.timestamp("ms"))
    snapshots = []
    for part in (times[:2], times[2:]):
        with OperatorHarness(ProcessOperator(Holds(mode))) as before:
            before.process(pa.record_batch({"at": part}))
            snapshots.append(before.snapshot(1))
            before.process(pa.record_batch({"at": part}))  # not in the snapshot
    for index, expected in enumerate(of_each):
        state = restore_state(snapshots, 1, index=index, parallelism=2)
        with OperatorHarness(ProcessOperator(Holds(mode)), state=state, index=index, parallelism=2) as after:
            after.end()
            assert [row["at"].microsecond // 1000 for row in after.rows()] == expected
            assert {row["seen"] for row in after.rows()} == {2}


class Renamed(us.ProcessFunction):
    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind

    def open(self, context: us.FunctionContext) -> None:
        self.numbers = context.operator_state("numbers", self.kind)

    def process_element(self, row: Row, context: us.FunctionContext, out: us.Collector) -> None:
        self.numbers.add(row["n"])


def test_a_list_of_another_type_is_refused_and_a_wider_one_is_not() -> None:
    with OperatorHarness(ProcessOperator(Renamed(pa.int32()))) as before:
        before.process({"n": [1, 2]})
        state: OperatorState = restore_state([before.snapshot(1)], 1)
    function = Renamed(pa.int64())
    with OperatorHarness(ProcessOperator(function), state=state):
        assert function.numbers.get() == (1, 2)
    with pytest.raises(
        ConfigError, match=r"operator 'operator': state 'numbers' was stored as int32.*struct"
    ):
        OperatorHarness(ProcessOperator(Renamed(pa.struct([("a", pa.int8())]))), state=state).open()
    with OperatorHarness(ProcessOperator(Renamed(pa.int8()))) as wrong:
        with pytest.raises(
            UserCodeError, match="'numbers' was given a value that is not of its declared type int8: 1000"
        ):
            wrong.process({"n": [1000]})
        assert not list(wrong.snapshot(1).lists["numbers"].items)


class Declares(us.ProcessFunction):
    """Never asks for its list: it is there because it is declared."""

    def __init__(self, mode: ListMode = ListMode.SPLIT) -> None:
        self.numbers = us.OperatorListDescriptor("numbers", pa.int64(), mode)

    def process_element(self, row: Row, context: us.FunctionContext, out: us.Collector) -> None:
        """Drops it."""


def test_a_declared_list_is_kept_though_nobody_asks_for_it() -> None:
    with OperatorHarness(ProcessOperator(Renamed(pa.int32()))) as before:
        before.process({"n": [1, 2]})
        state = restore_state([before.snapshot(1)], 1)
    with OperatorHarness(ProcessOperator(Declares()), state=state) as after:
        again = restore_state([after.snapshot(2)], 2)
    function = Renamed(pa.int64())
    with OperatorHarness(ProcessOperator(function), state=again):
        assert function.numbers.get() == (1, 2)
    assert ProcessOperator(Declares()).declared_lists() == (Declares().numbers,)


@pytest.mark.parametrize("mode", [ListMode.UNION, ListMode.BROADCAST])
def test_a_list_cannot_be_dealt_out_in_another_way_than_it_was_stored_for(mode: ListMode) -> None:
    with OperatorHarness(ProcessOperator(Renamed(pa.int64()))) as before:
        before.process({"n": [1, 2]})
        state = restore_state([before.snapshot(1)], 1)
    reported = f"'numbers' was stored as split list, and is declared as {mode.value} list; declare the stored"
    with pytest.raises(ConfigError, match=reported):
        OperatorHarness(ProcessOperator(Declares(mode)), state=state).open()


class Both(Declares):
    def open(self, context: us.FunctionContext) -> None:
        context.operator_state("numbers", pa.string())


class Untyped(Declares):
    def open(self, context: us.FunctionContext) -> None:
        context.operator_state("numbers")


@pytest.mark.parametrize(
    ("function", "reported"),
    [
        (Both(), r"'numbers' is declared twice, as split list of int64 and as split list of string"),
        (Untyped(), r"'numbers' needs a type, such as pa.int64\(\), or a descriptor"),
    ],
)
def test_what_a_list_is_must_be_said_once(function: us.ProcessFunction, reported: str) -> None:
    with pytest.raises(ConfigError, match=reported):
        OperatorHarness(ProcessOperator(function)).open()


# --- next to a broadcast stream --------------------------------------------------------------------

LIMITS = us.MapStateDescriptor("limits", pa.int64(), key_type=pa.string())


class AboveLimit(us.BroadcastProcessFunction):
    seen = us.ValueStateDescriptor("seen", pa.int64())

    def process_broadcast_element(self, row: Row, context: us.BroadcastContext, out: us.Collector) -> None:
        limits = context.broadcast_state(LIMITS)
        if row["what"] == "state":
            context.state(self.seen).update(1)
        limits.put(row["what"], row["limit"])

    def process_element(self, row: Row, context: us.BroadcastContext, out: us.Collector) -> None:
        if row["what"] == "write":
            context.broadcast_state(LIMITS).put("x", 1)
        seen = context.state(self.seen)
        seen.update((seen.value() or 0) + 1)
        limit = context.broadcast_state(LIMITS).get(row["what"])
        if limit is not None and seen.value() > limit:
            out.emit({"k": context.key, "seen": seen.value()})


def above_limit() -> BroadcastProcessOperator:
    made: BroadcastProcessOperator = cloudpickle.loads(
        cloudpickle.dumps(BroadcastProcessOperator(AboveLimit(), ["k"], [LIMITS]))
    )
    return made


def test_rows_read_what_the_broadcast_stream_wrote_also_after_a_restore() -> None:
    with OperatorHarness(above_limit()) as before:
        before.process({"k": [1, 2], "what": ["a", "a"]})
        before.process({"what": ["a"], "limit": [1]}, input_index=1)
        before.process({"k": [1, 1], "what": ["a", "b"]})
        assert before.rows() == [{"k": 1, "seen": 2}]
        snapshot = before.snapshot(1)
        before.process({"what": ["a"], "limit": [100]}, input_index=1)
    assert snapshot.lists["limits"].mode is ListMode.BROADCAST
    found = []
    for index in range(2):
        state = restore_state([snapshot], 1, index=index, parallelism=2)
        with OperatorHarness(above_limit(), state=state, index=index, parallelism=2) as after:
            for (key,) in sorted(after.context.state.keys("seen")):
                after.process({"k": [key], "what": ["a"]})
            found += after.rows()
    assert sorted(found, key=lambda row: row["k"]) == [{"k": 1, "seen": 4}, {"k": 2, "seen": 2}]


@pytest.mark.parametrize(
    ("rows", "side", "reported"),
    [
        ({"k": [1], "what": ["write"]}, 0, r"'limits' can only be changed in process_broadcast_element"),
        ({"what": ["state"], "limit": [1]}, 1, r"no current key"),
    ],
    ids=["rows do not write broadcast state", "broadcast elements have no key"],
)
def test_each_side_keeps_to_its_state(rows: Row, side: int, reported: str) -> None:
    with OperatorHarness(above_limit()) as harness:
        harness.process({"k": [1], "what": ["a"]})
        with pytest.raises(UserCodeError, match=reported):
            harness.process(rows, input_index=side)


def test_broadcast_maps_are_no_keyed_state() -> None:
    class WithMap(AboveLimit):
        limits = LIMITS

    operator = BroadcastProcessOperator(WithMap(), ["k"], [LIMITS])
    assert [descriptor.name for descriptor in operator.declared_states()] == ["seen"]
