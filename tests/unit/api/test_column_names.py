"""Names of columns: two of a row are never equal, and those of users do not meet ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import ConfigError, UserCodeError
from unistream.model.columns.column_names import RESERVED
from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.model.state import EXPIRES_COLUMN
from unistream.operator.common import BaseOperator, KeyRows
from unistream.operator.join import BroadcastLookupJoin, JoinKind
from unistream.operator.process.timer_table import TIMESTAMP_COLUMN
from unistream.operator.stateless import MapBatches
from unistream.operator.window.aggregates import RUN
from unistream.operator.window.held_partials import PANE
from unistream.testing.harness import OperatorHarness

TIMES = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
TWICE = pa.table([[1], [2]], names=["a", "a"])
HOUR = us.TumblingEventTimeWindows.of("1 h")


def rows(*names: str) -> us.DataStream:
    """Of integers; `at` is the time."""
    schema = pa.schema([(name, pa.int64()) for name in (*names, "at")])
    return us.Environment().from_source(us.StaticSource(schema.empty_table()), TIMES, "rows")


def windowed(*keys: str, **aggregates: Any) -> us.DataStream:
    return rows(*keys, "v").key_by(*keys).window(HOUR).aggregate(**aggregates or {"n": us.count()})


def joined(fact: str, added: str) -> us.DataStream:
    env = us.Environment()
    facts = env.from_collection([{"k": 1, fact: 2}], name="facts")
    return facts.join(env.from_collection([{"k": 1, added: 2}], name="dimension"), on="k")


@pytest.mark.parametrize(
    ("build", "text"),
    [
        pytest.param(
            lambda: windowed("window_start"),
            r"the key column 'window_start' has the name of a column that windows add; rename it",
            id="windows keyed by window_start",
        ),
        pytest.param(
            lambda: windowed("k", "window_end"), "'window_end' has the name", id="by window_end, too"
        ),
        pytest.param(
            lambda: windowed("count(*)"),
            r"the key column 'count\(\*\)' has the name of what windows keep for count\(\*\); rename it",
            id="windows keyed by a partial count",
        ),
        pytest.param(lambda: windowed("sum(v)", s=us.mean("v")), "keep for sum", id="by a partial sum"),
        pytest.param(lambda: windowed("k", k=us.count()), "'k' has the name of a key col", id="an aggregate"),
        pytest.param(lambda: windowed("k", window_end=us.count()), "has a column of that", id="window_end"),
        pytest.param(
            lambda: rows("k").key_by("k", "k"),
            "key_by: the key has two columns 'k'; rename",
            id="a key twice",
        ),
        *(
            pytest.param(
                lambda name=name: rows(name).key_by(name),
                f"the key has a column '{name}', which is a name of unistream's own; rename it",
                id=f"a key named {name}",
            )
            for name in sorted(RESERVED)
        ),
        pytest.param(
            lambda: rows("key").key_by(lambda _: 1, returns=pa.int64()),
            "key_by: a function adds its key as a column 'key', which the rows have; rename theirs",
            id="a key by a function next to a column key",
        ),
        pytest.param(
            lambda: us.Environment().from_collection(TWICE),
            "from_collection was given rows with two columns 'a'; rename one of them",
            id="a table",
        ),
        pytest.param(
            lambda: us.Environment().from_collection([], TWICE.schema),
            "two columns 'a'",
            id="a schema of rows",
        ),
        pytest.param(
            lambda: us.Environment().from_source(
                us.StaticSource(TWICE), us.WatermarkStrategy.no_watermarks(), "s"
            ),
            "'s': its rows have two columns 'a'; rename one of them",
            id="a source",
        ),
        pytest.param(lambda: rows("a").select("a", "a"), "select: column 'a' is named twice", id="select"),
        pytest.param(
            lambda: rows("a", "b").select("a", a=us.col("b")),
            "select: column 'a' is named twice; rename one: other_name='a'",
            id="select by name and by expression",
        ),
        pytest.param(
            lambda: rows("a").map(dict, returns=TWICE.schema), "returns= has two columns 'a'", id="returns"
        ),
        pytest.param(
            lambda: rows("a").process(us.ProcessFunction(), side_outputs={"late": TWICE.schema}),
            "side_outputs= of 'late' has two columns 'a'",
            id="side outputs",
        ),
        pytest.param(lambda: joined("x", "x"), "both sides have a column 'x'; rename one", id="both sides"),
        pytest.param(
            lambda: joined("__timestamp", "x"),
            "'__timestamp' is in the way of the time of",
            id="waiting rows",
        ),
    ],
)
def test_names_that_would_meet_are_refused_where_the_pipeline_is_written(
    build: Callable[[], object], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        build()


def test_the_reserved_names_are_those_that_are_used() -> None:
    assert {KEY_GROUP_COLUMN, EXPIRES_COLUMN, TIMESTAMP_COLUMN, PANE, RUN} == RESERVED


def test_names_of_others_with_underscores_are_free() -> None:
    assert windowed("__op", "__index_level_0__", "__0").schema.names[:3] == [
        "__op",
        "__index_level_0__",
        "__0",
    ]


@pytest.mark.parametrize(
    ("operator", "columns", "text"),
    [
        pytest.param(
            MapBatches(lambda _: TWICE.to_batches()[0]),
            ["n"],
            "returned rows with two columns 'a'",
            id="a batch",
        ),
        pytest.param(
            KeyRows(lambda _: 1, "key", pa.int64()),
            ["key"],
            "rows have a column 'key' already, which key_by with a function adds; rename it",
            id="key_by",
        ),
        pytest.param(
            BroadcastLookupJoin(
                [("k", "k")], pa.schema([("k", pa.int64()), ("x", pa.int64())]), JoinKind.LEFT
            ),
            ["k", "x"],
            "a fact and its dimension row have two columns 'x'; rename one of them before the join",
            id="a join",
        ),
    ],
)
def test_and_where_the_job_runs_if_the_columns_were_not_known(
    operator: BaseOperator, columns: list[str], text: str
) -> None:
    with OperatorHarness(operator) as harness, pytest.raises(UserCodeError, match=text):
        harness.process({name: [1] for name in columns})
