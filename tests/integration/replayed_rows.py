"""A pipeline of fares whose parser is mended between a run and the replay of its dead letters."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa

import unistream as us

FARES = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("fare", pa.int64())])
ROWS = 60
LAKE = "FARES_LAKE"  # folder of the tables; "lake" by default
DATABASE = "FARES_DATABASE"  # URL of the one for letters
KAFKA, TOPIC = "FARES_KAFKA", "FARES_TOPIC"  # where the records of `records` are, or letters
MENDED = "FARES_MENDED"  # "some": it still fails for every 6th; "all": for none


def fare(row: dict[str, Any]) -> dict[str, Any]:
    mended = os.environ.get(MENDED, "")
    fails = row["id"] % 3 == 1 if not mended else mended == "some" and row["id"] % 6 == 1
    if fails:
        raise ValueError(f"fare {row['text']!r}")
    return {"id": row["id"], "carrier": "AA", "fare": int(row["text"].removesuffix("$"))}


def pipeline(env: us.Environment) -> None:
    fares_to(env, us.DeltaSink(f"{os.environ.get(LAKE, 'lake')}/dead"))


def letters_in_iceberg(env: us.Environment) -> None:
    catalog = {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "warehouse"}
    fares_to(env, us.IcebergSink("lake.dead", catalog_properties=catalog))


def letters_in_a_database(env: us.Environment) -> None:
    fares_to(env, us.SqlSink(os.environ[DATABASE], "dead"))


def letters_in_json(env: us.Environment) -> None:
    fares_to(env, us.FileSink("lake/dead", format="json", partition_by=["replay_of"]))


def letters_in_kafka(env: us.Environment) -> None:
    dead = us.KafkaSink(
        bootstrap_servers=os.environ[KAFKA],
        topic=os.environ[TOPIC],
        transactional_id_prefix=os.environ[TOPIC],
        key="letter",
        headers={"error": "error", "of": "operator_uid", "ipc": "row_ipc"},
    )
    fares_to(env, dead)


def fares_to(env: us.Environment, dead: us.Sink) -> None:
    texts = [{"id": i, "text": f"{i}$" if i % 3 == 1 else str(i)} for i in range(ROWS)]
    carriers = env.from_collection([{"carrier": "AA", "name": "American"}], name="carriers").uid("carriers")
    more = env.from_collection([{"id": 1_000, "carrier": "AA", "fare": 0}], name="more", schema=FARES)
    rows = env.from_collection(texts, name="texts").uid("texts")
    fares = rows.map(fare, returns=FARES, on_error="dead-letter").uid("fares").name("fares")
    named = fares.union(more.uid("more")).join(carriers, on="carrier").uid("named")
    named.sink_to(us.DeltaSink(f"{os.environ.get(LAKE, 'lake')}/fares")).uid("lake")
    fares.dead_letters_to(dead)


LINES = 20


def line(i: int) -> str:
    """Every third fare has cents, every tenth is no number at all."""
    fare = '"free"' if i % 10 == 7 else f"{i}.5" if i % 3 == 1 else str(i)
    return f'{{"id": {i}, "fare": {fare}}}'


def read_fares(env: us.Environment, source: us.Source) -> None:
    """The type of the fares is mended; the letters of a source and the rows behind it go to tables."""
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "fares").uid("fares")
    doubled = rows.with_columns(double=us.col("fare") * us.lit(2)).uid("doubled")
    doubled.sink_to(us.FileSink("lake/doubled")).uid("lake")
    rows.dead_letters_to(us.FileSink("lake/dead"))


def fare_schema() -> pa.Schema:
    kind = pa.float64() if os.environ.get(MENDED) else pa.int64()
    return pa.schema([("id", pa.int64()), ("fare", kind)])


def lines(env: us.Environment) -> None:
    read_fares(
        env, us.FileSource("in/*.json", format="json", schema=fare_schema(), on_bad_record="dead-letter")
    )


def records(env: us.Environment) -> None:
    source = us.KafkaSource(
        bootstrap_servers=os.environ[KAFKA],
        topic=os.environ[TOPIC],
        schema=fare_schema(),
        metadata={"key": "key"},
        bounded=True,
        on_bad_record="dead-letter",
    )
    read_fares(env, source)


class Total(us.KeyedProcessFunction):
    total = us.ValueStateDescriptor("total", pa.int64())

    def process_element(self, row: dict[str, Any], context: Any, out: Any) -> None:
        total = context.state(self.total)
        total.update((total.value() or 0) + fare(row)["fare"])
        out.emit({"id": row["id"], "total": total.value()})


def stateful(env: us.Environment) -> None:
    rows = env.from_collection([{"id": i, "text": f"{i}"} for i in range(6)], name="texts").uid("texts")
    returns = {"id": pa.int64(), "total": pa.int64()}
    totals = rows.key_by("id").process(Total(), returns=returns, on_error="dead-letter").uid("totals")
    totals.sink_to(us.FileSink("totals")).uid("out")
    totals.dead_letters_to(us.FileSink("totals-dead"))
