"""Our decoders next to those that other packages bring: what each does with records that are bad, and how
fast each reads good ones.

    pip install polars arro3-io duckdb orjson msgspec pysimdjson pyruhvro ptars protarrow
    python -m benchmarks.decoder_libraries rules      JSON that our users have; what each package makes of it
    python -m benchmarks.decoder_libraries speed      good records per second of CPU, one thread

None of these packages is a dependency of ours because of this page: what is not installed is left out.
`rules` prints one line for each kind of record, and for each package whether it does what the guide says
(ok), refuses the whole batch where one record should be refused or read (batch), or gives a value where there
should be none, or another one (WRONG), of which no slower second look would ever be told.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from benchmarks import avro_decode, json_read

COUNT = 200_000
REPEATS = 5
BLOCK = 10_000
"""Records at a time."""
BAD = object()
GOOD_LINE = b"{}"
RULES: list[tuple[str, pa.DataType, bytes, Any]] = [
    ("missing", pa.int64(), b'{"b": 1}', None),
    ("null", pa.int64(), b'{"a": null}', None),
    ("a field twice", pa.int64(), b'{"a": 1, "a": 2}', BAD),
    ("the largest int64", pa.int64(), b'{"a": 9223372036854775807}', 2**63 - 1),
    ("one more", pa.int64(), b'{"a": 9223372036854775808}', BAD),
    ("the largest uint64", pa.uint64(), b'{"a": 18446744073709551615}', 2**64 - 1),
    ("a fraction for an integer", pa.int64(), b'{"a": 1.5}', BAD),
    ("text for a number", pa.int64(), b'{"a": "5"}', BAD),
    ("a number for text", pa.string(), b'{"a": 5}', BAD),
    ("an object for text", pa.string(), b'{"a": {"x": 1}}', BAD),
    ("a boolean for a number", pa.int64(), b'{"a": true}', BAD),
    ("NaN", pa.float64(), b'{"a": NaN}', math.nan),
    ("too large for a double", pa.float64(), b'{"a": 1e400}', BAD),
    ("17 digits", pa.float64(), b'{"a": 0.30000000000000004}', 0.30000000000000004),
    ("no UTF-8", pa.string(), b'{"a": "\xff"}', BAD),
    ("half a surrogate pair", pa.string(), b'{"a": "\\ud800"}', BAD),
    ("a control character", pa.string(), b'{"a": "x\x01"}', BAD),
    ("an escape", pa.string(), b'{"a": "\\u00e4\\n"}', "ä\n"),
    ("cut off", pa.int64(), b'{"a": 1', BAD),
    ("two objects", pa.int64(), b'{"a": 1} {"a": 2}', BAD),
    ("no object", pa.int64(), b"[1]", BAD),
    ("an error in a field that is not read", pa.int64(), b'{"a": 1, "b": tru}', BAD),
    ("a time as text", pa.timestamp("ms"), b'{"a": "2026-01-01T00:00:00"}', 1_767_225_600_000),
    ("a time as a number", pa.timestamp("ms"), b'{"a": 1767225600000}', 1_767_225_600_000),
    ("a time that is none", pa.timestamp("ms"), b'{"a": "2026-13-01T00:00:00"}', BAD),
]
Read = Callable[[list[bytes], pa.Schema], pa.Table]


def module(name: str) -> Any:
    """The module, or None."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


# --- JSON -----------------------------------------------------------------------------------------


def spans(records: list[bytes]) -> tuple[Any, Any, Any]:
    from unistream.connector.common import padded

    lengths = np.array([len(one) for one in records], np.int64)
    return padded(*records), np.cumsum(lengths) - lengths, lengths


def by_us(records: list[bytes], schema: pa.Schema) -> pa.Table:
    """Raises ValueError: which is bad, and why; a table of the others would be there, too."""
    from unistream.connector.common import JsonReader

    found = JsonReader(schema).read(*spans(records))
    if len(found.bad):
        raise ValueError(found.bad.tolist())
    return pa.table(found.records)


def by_pyarrow(records: list[bytes], schema: pa.Schema) -> pa.Table:
    text = b"\n".join(records)
    parse = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    options = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
    return pj.read_json(pa.BufferReader(text), options, parse)


def by_polars(records: list[bytes], schema: pa.Schema) -> pa.Table:
    polars = module("polars")
    types = {
        pa.int64(): polars.Int64,
        pa.uint64(): polars.UInt64,
        pa.float64(): polars.Float64,
        pa.string(): polars.String,
        pa.timestamp("ms"): polars.Datetime("ms"),
    }
    wanted = {field.name: types[field.type] for field in schema}
    return polars.read_ndjson(io.BytesIO(b"\n".join(records)), schema=wanted).to_arrow()


def by_arro3(records: list[bytes], schema: pa.Schema) -> pa.Table:
    read = module("arro3.io").read_json(io.BytesIO(b"\n".join(records)), schema, batch_size=BLOCK)
    return pa.table(pa.RecordBatchReader.from_stream(read).read_all())


def by_duckdb(records: list[bytes], schema: pa.Schema) -> pa.Table:
    sql = {
        pa.int64(): "BIGINT",
        pa.uint64(): "UBIGINT",
        pa.float64(): "DOUBLE",
        pa.string(): "VARCHAR",
        pa.timestamp("ms"): "TIMESTAMP_MS",
    }
    structure = json.dumps({field.name: sql[field.type] for field in schema})
    lines = pa.table({"line": pa.array(records, pa.binary()).cast(pa.string())})
    connection = module("duckdb").connect(config={"threads": 1})
    with connection:
        connection.register("lines", lines)
        query = f"SELECT unnest(from_json(line, '{structure}')) FROM lines"
        return connection.execute(query).to_arrow_table()


def struct_of(schema: pa.Schema) -> type[msgspec.Struct]:
    from datetime import datetime

    types = {
        pa.int64(): int,
        pa.uint64(): int,
        pa.float64(): float,
        pa.string(): str,
        pa.timestamp("ms"): datetime | int,
    }
    return msgspec.defstruct("Row", [(field.name, types[field.type] | None, None) for field in schema])


def by_msgspec(records: list[bytes], schema: pa.Schema) -> pa.Table:
    decode = msgspec.json.Decoder(struct_of(schema)).decode
    rows = [decode(record) for record in records]
    return pa.table({f.name: pa.array([getattr(row, f.name) for row in rows], f.type) for f in schema})


def by_orjson(records: list[bytes], schema: pa.Schema) -> pa.Table:
    rows = list(map(module("orjson").loads, records))
    return pa.table({field.name: _column(rows, field) for field in schema})


def by_simdjson(records: list[bytes], schema: pa.Schema) -> pa.Table:
    parser = module("simdjson").Parser()
    rows = []
    for record in records:
        document = parser.parse(record)
        rows.append({field.name: document.get(field.name) for field in schema})
        del document
    return pa.table({field.name: _column(rows, field) for field in schema})


def _column(rows: list[dict[str, Any]], field: pa.Field) -> pa.Array:
    values = [row.get(field.name) for row in rows]
    if pa.types.is_timestamp(field.type):
        texts = pa.array([one if isinstance(one, str) else None for one in values], pa.string())
        numbers = pa.array([None if isinstance(one, str) else one for one in values], pa.int64())
        return pa.compute.coalesce(texts.cast(field.type), numbers.cast(field.type))
    return pa.array(values, field.type)


JSON_READERS: dict[str, tuple[str, Read]] = {
    "unistream": ("unistream", by_us),
    "pyarrow": ("pyarrow", by_pyarrow),
    "polars": ("polars", by_polars),
    "arro3": ("arro3.io", by_arro3),
    "DuckDB": ("duckdb", by_duckdb),
    "msgspec": ("msgspec", by_msgspec),
    "orjson": ("orjson", by_orjson),
    "pysimdjson": ("simdjson", by_simdjson),
}


def installed() -> Iterator[tuple[str, Read]]:
    for name, (package, read) in JSON_READERS.items():
        if module(package) is not None:
            yield name, read


def rules() -> None:
    names = [name for name, _ in installed()]
    print(f"{'':38}" + "".join(f"{name:>11}" for name in names))
    for what, kind, record, wanted in RULES:
        found = [_verdict(read, pa.schema([("a", kind)]), record, wanted) for _, read in installed()]
        print(f"{what:38}" + "".join(f"{one:>11}" for one in found))


def _verdict(read: Read, schema: pa.Schema, record: bytes, wanted: Any) -> str:
    try:
        table = read([GOOD_LINE, record, GOOD_LINE], schema)
    except ValueError as error:
        if read is by_us:
            return "ok" if wanted is BAD and error.args == ([1],) else "WRONG"
        return "batch"
    except BaseException:  # whatever they raise: a panic of Rust is no Exception
        return "batch"
    if wanted is BAD or table.num_rows != 3:
        return "WRONG"
    column = table.column("a")
    value = column.cast(pa.int64())[1].as_py() if pa.types.is_timestamp(column.type) else column[1].as_py()
    same = value == wanted or (isinstance(wanted, float) and math.isnan(wanted) and math.isnan(value))
    return "ok" if same else "WRONG"


# --- speed ----------------------------------------------------------------------------------------


def speed() -> None:
    for what, runs in (
        ("JSON, six columns", json_runs()),
        ("Debezium JSON, three columns", debezium_runs()),
        ("Avro, values of a topic", avro_runs()),
        ("Avro, a file", avro_file_runs()),
        ("Protobuf", protobuf_runs()),
    ):
        for name, run in runs:
            run()  # loads, or compiles
            best = min(_timed(run) for _ in range(REPEATS))
            print(f"{what:30} {name:34} {COUNT / best / 1e6:8.2f} million records/s of CPU", flush=True)


def _timed(run: Callable[[], Any]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


def _in_blocks(records: list[bytes], read: Callable[[list[bytes]], Any]) -> Callable[[], None]:
    blocks = [records[at : at + BLOCK] for at in range(0, len(records), BLOCK)]

    def run() -> None:
        for block in blocks:
            read(block)

    return run


def json_runs() -> Iterator[tuple[str, Callable[[], None]]]:
    records = json_read.lines(0, COUNT).splitlines()
    for name, read in installed():
        yield name, _in_blocks(records, lambda block, read=read: read(block, json_read.SCHEMA))


def change_events() -> list[bytes]:
    source = {"version": "3.2", "connector": "postgresql", "db": "shop", "table": "items", "lsn": 24_023_128}
    return [
        json.dumps(
            {
                "before": {"id": i, "name": f"item {i % 100}", "price": i / 4} if i % 3 == 0 else None,
                "after": {"id": i, "name": f"item {i % 90}", "price": i / 8},
                "source": source,
                "op": "u" if i % 3 == 0 else "c",
                "ts_ms": 1_767_225_600_000 + i,
            }
        ).encode()
        for i in range(COUNT)
    ]


def debezium_runs() -> Iterator[tuple[str, Callable[[], None]]]:
    from unistream.connector.kafka.format.debezium import DebeziumDecoder
    from unistream.connector.kafka.record.records import Framed

    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])
    records = change_events()
    decoder = DebeziumDecoder(schema, {"op": "op"})

    def ours(block: list[bytes]) -> None:
        data, starts, lengths = spans(block)
        none = np.full(len(block), -1)
        framed = Framed(data, none, none, none, none, starts, lengths)
        assert len(decoder.decode(framed).bad) == 0

    yield "unistream", _in_blocks(records, ours)
    image = pa.struct(list(schema))
    event = pa.schema([("before", image), ("after", image), ("op", pa.string()), ("ts_ms", pa.int64())])
    yield "pyarrow, columns of structs", _in_blocks(records, lambda block: by_pyarrow(block, event))
    if module("arro3.io"):
        yield "arro3, columns of structs", _in_blocks(records, lambda block: by_arro3(block, event))
    if polars := module("polars"):
        kinds = polars.Struct({"id": polars.Int64, "name": polars.String, "price": polars.Float64})
        types = {"before": kinds, "after": kinds, "op": polars.String, "ts_ms": polars.Int64}
        yield (
            "polars, columns of structs",
            _in_blocks(
                records, lambda block: polars.read_ndjson(io.BytesIO(b"\n".join(block)), schema=types)
            ),
        )
    row = struct_of(schema)
    decode = msgspec.json.Decoder(
        msgspec.defstruct("Event", [("op", str), ("before", row | None, None), ("after", row | None, None)])
    ).decode

    def by_structs(block: list[bytes]) -> pa.Table:
        images = [one.before if one.op == "d" else one.after for one in map(decode, block)]
        return pa.table({f.name: pa.array([getattr(one, f.name) for one in images], f.type) for f in schema})

    yield "msgspec, a struct for each", _in_blocks(records, by_structs)


def avro_runs() -> Iterator[tuple[str, Callable[[], None]]]:
    from unistream.connector.common import parsed, planned
    from unistream.connector.common.avro_columns import ByRecord
    from unistream.connector.common.avro_types import read_as

    values = avro_decode.values(COUNT)
    text = json.dumps(avro_decode.WRITER)
    schema = parsed("its schema", text)
    plan = planned(schema, avro_decode.COLUMNS)
    yield "unistream", _in_blocks(values, lambda block: plan.decode(*spans(block), avro_decode.COLUMNS))
    by_record = ByRecord("its schema", schema.plain, read_as(schema, avro_decode.COLUMNS))
    yield (
        "fastavro, record by record",
        _in_blocks(values, lambda block: by_record.decode(*spans(block), avro_decode.COLUMNS)),
    )
    if ruhvro := module("pyruhvro"):
        yield "pyruhvro", _in_blocks(values, lambda block: ruhvro.deserialize_array(block, text))


def avro_file_runs() -> Iterator[tuple[str, Callable[[], None]]]:
    import fastavro

    from unistream.connector.common import parsed, planned

    values = avro_decode.values(COUNT)
    file = avro_decode.container(values)
    plan = planned(parsed("its schema", json.dumps(avro_decode.WRITER)), avro_decode.COLUMNS)
    block = spans(values)[0], np.array([0, sum(map(len, values))]), np.array([COUNT])
    yield "unistream", lambda: plan.blocks(*block, avro_decode.COLUMNS)
    yield "fastavro", lambda: pa.Table.from_pylist(list(fastavro.reader(io.BytesIO(file))))
    if polars := module("polars"):
        yield "polars", lambda: polars.read_avro(io.BytesIO(file))


def protobuf_runs() -> Iterator[tuple[str, Callable[[], None]]]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    from unistream.connector.kafka.format.protobuf import ProtobufDecoder
    from unistream.connector.kafka.format.protobuf_schema import ProtobufMessage
    from unistream.connector.kafka.record.records import Framed

    kinds = {
        "id": ("int64", pa.int64()),
        "carrier": ("string", pa.string()),
        "delay": ("double", pa.float64()),
    }
    file = descriptor_pb2.FileDescriptorProto(name="flights.proto", package="flights", syntax="proto3")
    message = file.message_type.add(name="Flight")
    for number, (name, (kind, _)) in enumerate(kinds.items(), 1):
        type_ = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
        message.field.add(name=name, number=number, label=1, type=type_)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("flights.Flight"))
    values = [made(id=i, carrier=f"c{i % 16}", delay=i / 3).SerializeToString() for i in range(COUNT)]
    schema = pa.schema([(name, kind) for name, (_, kind) in kinds.items()])
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    decoder = ProtobufDecoder(schema, ProtobufMessage(name="flights.Flight", descriptors=descriptors))

    def ours(block: list[bytes]) -> None:
        data, starts, lengths = spans(block)
        none = np.full(len(block), -1)
        assert len(decoder.decode(Framed(data, none, none, none, none, starts, lengths)).bad) == 0

    def by_message(block: list[bytes]) -> pa.Table:
        messages = list(map(made.FromString, block))
        return pa.table(
            {f.name: pa.array([getattr(one, f.name) for one in messages], f.type) for f in schema}
        )

    yield "unistream", _in_blocks(values, ours)
    yield "protobuf (upb), message by message", _in_blocks(values, by_message)
    if ptars := module("ptars"):
        handler = ptars.HandlerPool([made.DESCRIPTOR.file]).get_for_message(made.DESCRIPTOR)
        yield "ptars", _in_blocks(values, handler.list_to_record_batch)
    if protarrow := module("protarrow"):
        yield (
            "protarrow",
            _in_blocks(
                values,
                lambda block: protarrow.messages_to_record_batch(list(map(made.FromString, block)), made),
            ),
        )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("what", choices=["rules", "speed"])
    {"rules": rules, "speed": speed}[arguments.parse_args().what]()


if __name__ == "__main__":
    sys.exit(main())
