"""Programs that a type checker must refuse, line by line; `make check` runs mypy over them, and
`make test-nightly` pyright. An `ignore` that is not needed is an error: then a mistake is accepted. Nothing
of this is ever run."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.compute as pc

import unistream as us
from unistream.testing import MiniCluster

STATES = (
    us.ValueStateDescriptor("last", pa.int64()),
    us.ListStateDescriptor("all", pa.int64()),
    us.MapStateDescriptor("by", pa.int64(), key_type=pa.string()),
    us.ReducingStateDescriptor("sum", pa.int64(), reduce=lambda one, other: one + other),
)


def words(env: us.Environment, rows: us.DataStream, cluster: MiniCluster, job: us.JobClient) -> None:
    """Words that are one of a few."""
    us.Environment(target="yarn")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.join(rows, on="k", how="outer")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.map(dict, on_error="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    us.DeltaSink("t", mode="merge")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    us.SqlSink("sqlite://", "t", mode="merge")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    job.stop(format="avro")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    job.checkpoint(type="quick")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    cluster.execute(env.job_graph())  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


def expressions(rows: us.DataStream) -> None:
    """Columns, and what can be computed of them."""
    us.col(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = us.col("n") + None  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    _ = us.col("n") & 1  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    _ = [1] * us.col("n")  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    us.col("n").alias("m")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    us.col("n").isin(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    us.col("t").contains(us.col("n"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    us.col("at").floor_to("days")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    us.concat(us.col("t"), 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.select(x=us.when(us.col("n") > 1, 2))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.filter("n > 3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.select(us.col("n") * 2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.with_columns(n=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.with_columns(us.col("n"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.key_by(["a", "b"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    us.sum(us.col("n"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.key_by("k").window("1 min")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.key_by("k").map(dict)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


class Handles(us.KeyedProcessFunction):
    """State is what its descriptor says."""

    def open(self, context: us.ProcessContext) -> None:
        last, every, by, total = STATES
        context.state(last).add(1)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        context.state(every).value()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        context.state(by).put(1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        context.state(total).update(1)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        context.state("seen")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
        context.state("seen", pa.int64()).get()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


class Broadcast(us.BroadcastProcessFunction):
    """Its context has broadcast state, and that of other functions has not."""

    def process_element(
        self, row: dict[str, object], context: us.BroadcastContext, out: us.Collector
    ) -> None:
        context.broadcast_state(STATES[0])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        out.emit("row")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        context.register_event_time_timer(datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def right(rows: us.DataStream, cluster: MiniCluster, env: us.Environment) -> us.JobResult:
    """The same things as they are meant: no line is refused."""
    late = rows.filter((us.col("delay") > 15) & ~us.col("cancelled").is_null())
    more = late.with_columns(double=us.col("n") * 2, day=us.col("at") >= datetime.date(2013, 1, 1), k="n")
    half = more.with_columns(
        half=(1 - us.col("n")) / 2 % 3 // abs(-us.col("n")) ** 0.5,
        kind=us.when(us.col("n").between(1, 3), "few").otherwise(us.concat(us.col("t").lower(), "-")),
        month=us.col("at").floor_to("month"),
        even=True & (us.col("n") % 2 == 0) | us.col("n").isin([1, 3]) ^ us.col("t").starts_with("x"),
    )
    half.filter(us.col("half") > pc.field("n")).select(x=us.Expression(pc.field("half")) * 2)
    more.key_by("k").window(us.TumblingEventTimeWindows.of("1 min")).aggregate(n=us.count())
    more.key_by(lambda row: row["k"] % 7, returns=pa.int64()).uid("key").process(Handles())
    return cluster.execute(env, "right")
