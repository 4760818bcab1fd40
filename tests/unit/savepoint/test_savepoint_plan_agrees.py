"""Operators with state in a form of their own: a plan refuses exactly what a restore refuses, and says why in
the same words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid, VertexId
from unistream.core.restore import StateOutcome, plan_restore
from unistream.model.graph import JobGraph, JobVertex, OperatorInfo
from unistream.operator.join import BroadcastLookupJoin, JoinKind
from unistream.operator.window import (
    FIRED,
    Aggregate,
    AggregatePlan,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAggregate,
    Windows,
)
from unistream.operator.window import aggregates as agg
from unistream.savepoint.plan import declared_by, stored_states
from unistream.testing.harness import OperatorHarness, restore_state

UID = OperatorUid("it")
TENS = TumblingEventTimeWindows.of("10 s")


def rows_of(**types: pa.DataType) -> pa.Schema:
    """`user`, `day` and `v`, with these types in place of the usual ones."""
    usual = {"user": pa.string(), "day": pa.int64(), "v": pa.int32()}
    return pa.schema(list({**usual, **types}.items()))


def windowed(
    windows: Windows = TENS,
    aggregates: Mapping[str, Aggregate] | None = None,
    keys: tuple[str, ...] = ("user", "day"),
    **types: pa.DataType,
) -> WindowAggregate:
    plan = AggregatePlan(keys, aggregates or {"low": agg.min("v")})
    partials = plan.partial_schema(rows_of(**types))
    return WindowAggregate(plan, windows, pre_aggregated=False, partials=partials)


def joined(
    key: str = "user", facts: Mapping[str, pa.DataType] | None = None, **types: pa.DataType
) -> BroadcastLookupJoin:
    """Rows of `rows_of` with others, by one key."""
    named = [(f"fact_{field.name}", field.type) for field in rows_of(**(facts or {}))]
    return BroadcastLookupJoin(
        [(f"fact_{key}", key)], rows_of(**types), JoinKind.LEFT, facts=pa.schema(named)
    )


ROWS = pa.RecordBatch.from_pydict({"user": ["a", "b"], "day": [1, 2], "v": [3, 4]}, schema=rows_of())


def fill(harness: OperatorHarness) -> None:
    if isinstance(harness.operator, WindowAggregate):
        harness.process(ROWS, [1_000, 12_000])
    else:
        harness.process(ROWS, input_index=1)
        waiting = ROWS.set_column(0, pa.field("user", pa.string()), pa.array(["x", "y"]))
        renamed = pa.RecordBatch.from_arrays(
            waiting.columns, names=[f"fact_{name}" for name in waiting.schema.names]
        )
        harness.process(renamed, [1_000, 12_000])


def planned(operator: Any, savepoint: us.Savepoint) -> list[tuple[StateOutcome, str]]:
    declared = declared_by(operator)
    assert declared is not None
    vertex = JobVertex(
        id=VertexId("v"),
        name="v",
        operators=(OperatorInfo(uid=UID, name="it", stateful=True),),
        parallelism=1,
        max_parallelism=128,
        inputs=0,
    )
    [found] = plan_restore(
        savepoint.manifest,
        savepoint.path,
        JobGraph(name="job", vertices=(vertex,), edges=()),
        stored_states(savepoint, {UID: declared}),
        {UID: declared},
        allow_non_restored=False,
        allow_pickled=False,
    ).operators
    return [(state.outcome, state.why) for state in found.states]


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        pytest.param(windowed(), windowed(), StateOutcome.KEPT, id="windows as they were"),
        pytest.param(
            windowed(),
            windowed(TumblingEventTimeWindows.of("20 s")),
            StateOutcome.REFUSED,
            id="longer windows",
        ),
        pytest.param(
            windowed(),
            windowed(SlidingEventTimeWindows.of("20 s", "10 s")),
            StateOutcome.REFUSED,
            id="sliding now",
        ),
        pytest.param(
            windowed(SlidingEventTimeWindows.of("20 s", "10 s")),
            windowed(SlidingEventTimeWindows.of("20 s", "5 s")),
            StateOutcome.REFUSED,
            id="sliding by less",
        ),
        pytest.param(
            windowed(),
            windowed(TumblingEventTimeWindows.of("10 s", 20_000)),
            StateOutcome.KEPT,
            id="an equal offset",
        ),
        pytest.param(windowed(), windowed(v=pa.int64()), StateOutcome.MIGRATED, id="a wider column"),
        pytest.param(windowed(), windowed(v=pa.int8()), StateOutcome.REFUSED, id="a narrower column"),
        pytest.param(
            windowed(), windowed(user=pa.large_string()), StateOutcome.MIGRATED, id="a text of another layout"
        ),
        pytest.param(
            windowed(), windowed(user=pa.binary()), StateOutcome.REFUSED, id="a key of another type"
        ),
        pytest.param(windowed(), windowed(day=pa.int32()), StateOutcome.REFUSED, id="a narrower key"),
        pytest.param(
            windowed(), windowed(keys=("day", "user")), StateOutcome.REFUSED, id="keys in another order"
        ),
        pytest.param(windowed(), windowed(keys=("user",)), StateOutcome.REFUSED, id="a key less"),
        pytest.param(
            windowed(),
            windowed(aggregates={"low": agg.max("v")}),
            StateOutcome.REFUSED,
            id="another aggregate",
        ),
        pytest.param(
            windowed(),
            windowed(aggregates={"least": agg.min("v")}),
            StateOutcome.KEPT,
            id="a result of another name",
        ),
        pytest.param(joined(), joined(), StateOutcome.KEPT, id="a join as it was"),
        pytest.param(joined(), joined("day"), StateOutcome.REFUSED, id="a dimension by another key"),
        pytest.param(
            joined(), joined(v=pa.int64()), StateOutcome.MIGRATED, id="a wider column of the dimension"
        ),
        pytest.param(
            joined(), joined(v=pa.string()), StateOutcome.REFUSED, id="another type in the dimension"
        ),
        pytest.param(
            joined(), joined(more=pa.int8()), StateOutcome.REFUSED, id="a new column of the dimension"
        ),
        pytest.param(
            joined(), joined(facts={"v": pa.int64()}), StateOutcome.MIGRATED, id="a wider column of the facts"
        ),
        pytest.param(
            joined(), joined(facts={"v": pa.string()}), StateOutcome.REFUSED, id="another type in the facts"
        ),
    ],
)
def test_a_plan_is_refused_exactly_if_a_restore_is(
    before: Any, after: Any, outcome: StateOutcome, tmp_path: Path
) -> None:
    with OperatorHarness(before) as harness:
        fill(harness)
        snapshot = harness.snapshot(1)
    writer = us.SavepointWriter()
    for name, table in snapshot.keyed.items():
        writer.with_table(UID, name, table, keys=["user", "day"])
    for name, stored in snapshot.lists.items():
        writer.with_list(UID, name, stored.items, mode=stored.mode)
    states = planned(after, us.read_savepoint(writer.write(tmp_path / "savepoint")))
    worst = [
        kind
        for kind in (StateOutcome.REFUSED, StateOutcome.MIGRATED, StateOutcome.KEPT)
        if kind in {f for f, _ in states}
    ]
    assert worst[0] is outcome, states
    assert {kind for kind, _ in states} <= {StateOutcome.REFUSED, StateOutcome.MIGRATED, StateOutcome.KEPT}
    harness = OperatorHarness(after, state=restore_state([snapshot], 1))
    if outcome is not StateOutcome.REFUSED:
        with harness:
            assert harness.snapshot(2).lists.keys() == snapshot.lists.keys()
        return
    with pytest.raises(ConfigError) as caught:
        harness.open()
    reasons = {why.partition("; give the operator another uid")[0] for kind, why in states if why}
    assert any(reason in str(caught.value) for reason in reasons), (states, caught.value)


def test_the_time_until_which_windows_have_fired_is_kept_in_the_form_of_an_older_version(
    tmp_path: Path,
) -> None:
    """It was a list; now it is a table."""
    operator = windowed(SlidingEventTimeWindows.of("20 s", "10 s"))
    item = msgspec.msgpack.encode(9_999)
    writer = us.SavepointWriter().with_list(UID, FIRED, [item], mode=us.ListMode.BROADCAST)
    [(outcome, _)] = planned(operator, us.read_savepoint(writer.write(tmp_path / "savepoint")))
    assert outcome is StateOutcome.KEPT
