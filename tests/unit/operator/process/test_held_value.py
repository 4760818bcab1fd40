"""Value state of a bounded job, held while the rows of a key come: the same values as in a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import UserCodeError
from unistream.operator.process import KeyedProcessOperator
from unistream.operator.process.held import HeldInteger, HeldValue, held
from unistream.testing.harness import OperatorHarness

NOTHING = 0  # no row adds it
NUMBER = us.ValueStateDescriptor("number", pa.int64())
TEXT = us.ValueStateDescriptor("text", pa.string())
LASTING = us.ValueStateDescriptor("lasting", pa.int64(), options=us.StateOptions(ttl=us.StateTtl("1 h")))
ROWS = {
    "k": [1, 2, 1, 3, 2, 1, 3, 1],
    "add": [5, 1, None, 7, 2, 4, None, 6],
    "at": [10, 20, 30, 40, 50, 60, 70, 80],
}
RESULT = pa.schema([("k", pa.int64()), ("number", pa.int64()), ("text", pa.string()), ("why", pa.string())])


class Keeps(us.KeyedProcessFunction):
    """Adds, and clears at null; under three names for one state, one of them found in `open`."""

    def __init__(self, failing: int = NOTHING) -> None:
        self.failing = failing

    def open(self, context: us.ProcessContext) -> None:
        self.kept = context.state(NUMBER)

    def process_element(self, row: dict[str, Any], context: us.ProcessContext, out: us.Collector) -> None:
        by_name, text = context.state("number", pa.int64()), context.state(TEXT)
        before = context.state(NUMBER).value() or 0
        context.register_event_time_timer(100 + row["k"])
        if row["add"] is None:
            by_name.clear()
        else:
            self.kept.update(before + row["add"])
        text.update((text.value() or "") + str(row["add"]))
        if row["add"] == self.failing:
            raise ValueError("this one")
        self.give(context, out, "row")

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        self.give(context, out, "timer")
        self.kept.update(None)
        self.give(context, out, "afterwards")

    def give(self, context: us.ProcessContext, out: us.Collector, why: str) -> None:
        given = {
            "k": context.key,
            "number": self.kept.value(),
            "text": context.state(TEXT).value(),
            "why": why,
        }
        out.emit(given)


def rows_of(operator: Any, tmp_path: Path, *, batch: bool) -> list[tuple[Any, ...]]:
    form = operator.batch_form() if batch else operator
    harness = OperatorHarness(
        form, managed_memory_bytes=30_000, tmp_dir=str(tmp_path), checkpointing=not batch
    )
    with harness:
        for start in (0, 4):
            part = {name: values[start : start + 4] for name, values in ROWS.items()}
            harness.process(part, timestamps=part["at"])
        harness.end()
    return sorted((tuple(row.values()) for row in harness.rows()), key=str)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("failing", [NOTHING, 4])
def test_values_are_those_of_a_stream(on_error: str, failing: int, tmp_path: Path) -> None:
    """Read, replaced, cleared, taken back, and read by timers, of keys that come in turns."""
    if on_error == "fail" and failing != NOTHING:
        with pytest.raises(UserCodeError, match="this one"):
            rows_of(KeyedProcessOperator(Keeps(failing), ["k"], returns=RESULT), tmp_path, batch=True)
        return

    def operator() -> KeyedProcessOperator:
        return KeyedProcessOperator(Keeps(failing), ["k"], returns=RESULT, on_error=on_error)  # type: ignore[arg-type]

    streamed = rows_of(operator(), tmp_path, batch=False)
    assert rows_of(operator(), tmp_path, batch=True) == streamed
    assert [row for row in streamed if row[0] == 1 and row[3] == "timer"] == [
        (1, 10 if failing == NOTHING else 6, "5None46" if failing == NOTHING else "5None6", "timer")
    ]


@pytest.mark.parametrize("batch", [True, False])
def test_only_a_bounded_job_holds_values(batch: bool, tmp_path: Path) -> None:
    """In a stream the key may be another one with each row."""
    function = Keeps()
    rows_of(KeyedProcessOperator(function, ["k"], returns=RESULT), tmp_path, batch=batch)
    assert isinstance(function.kept, HeldValue) is batch


class Handle:
    """One value, and how often it was written."""

    def __init__(self, value: Any) -> None:
        self.now = value
        self.writes = 0

    def value(self) -> Any:
        return self.now

    def update(self, value: Any) -> None:
        self.now = value
        self.writes += 1


@pytest.mark.parametrize(
    ("steps", "after", "writes"),
    [
        ([], 3, 0),
        (["read"], 3, 0),
        ([3], 3, 0),
        ([4], 4, 1),
        ([4, 5], 5, 1),
        (["clear"], None, 1),
        ([4, "clear"], None, 1),
        (["clear", 6], 6, 1),
        ([None], None, 1),
        ([2**63 - 1], 2**63 - 1, 1),
        ([7.0], 7, 1),
    ],
    ids=str,
)
def test_a_value_goes_back_once_and_only_if_it_changed(steps: list[Any], after: Any, writes: int) -> None:
    handle = Handle(3)
    value = held(handle, NUMBER)
    assert isinstance(value, HeldInteger)
    value.enter()
    for step in steps:
        if step == "clear":
            value.clear()
        elif step == "read":
            assert value.value() == 3
        else:
            value.update(step)
            assert value.value() == step
            assert type(value.value()) in (int, type(None))
    value.leave()
    assert (handle.now, handle.writes) == (after, writes)
    assert value.value() is None, "outside of a key there is none"


@pytest.mark.parametrize("wrong", [2**63, "4", 4.5, True], ids=str)
def test_a_value_that_does_not_fit_is_refused_when_it_is_given(wrong: Any) -> None:
    handle = Handle(3)
    value = held(handle, NUMBER)
    assert value is not None
    value.enter()
    with pytest.raises(UserCodeError, match="number"):
        value.update(wrong)
    assert value.value() == 3


@pytest.mark.parametrize(
    ("descriptor", "kind"),
    [
        (NUMBER, HeldInteger),
        (us.ValueStateDescriptor("small", pa.int8()), HeldValue),
        (TEXT, HeldValue),
        (us.ValueStateDescriptor("at", pa.timestamp("ms", "UTC")), HeldValue),
        (LASTING, type(None)),
        (us.ValueStateDescriptor("nested", pa.list_(pa.int64())), type(None)),
        (us.ListStateDescriptor("list", pa.int64()), type(None)),
        (us.MapStateDescriptor("map", pa.int64(), key_type=pa.string()), type(None)),
        (us.ReducingStateDescriptor("sum", pa.int64(), reduce=max), type(None)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_is_held(descriptor: Any, kind: type) -> None:
    assert type(held(Handle(None), descriptor)) is kind
