"""How fast Avro values become columns: our compiled loops, fastavro record by record, and polars.

    python -m benchmarks.avro_decode [--records 1000000]

polars reads container files: the values are one block of such a file. It is no dependency; it is measured
where it is installed (`uv run --with polars`).
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import time
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from unistream.connector.common import Int64s, UInt8s, padded, parsed, planned
from unistream.connector.common.avro_columns import ByRecord
from unistream.connector.common.avro_types import read_as

WRITER = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "carrier", "type": "string"},
        {"name": "origin", "type": ["null", "string"]},
        {"name": "delay", "type": ["null", "double"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("carrier", pa.string()),
        ("origin", pa.string()),
        ("delay", pa.float64()),
        ("at", pa.timestamp("ms", tz="UTC")),
    ]
)
SYNC = b"0123456789abcdef"


def values(count: int) -> list[bytes]:
    schema = fastavro.parse_schema(WRITER)
    found = []
    for i in range(count):
        stream = io.BytesIO()
        origin = None if i % 7 == 0 else f"AP{i % 300}"
        delay = i / 3 if i % 5 else None
        row = {
            "id": i,
            "carrier": f"c{i % 16}",
            "origin": origin,
            "delay": delay,
            "at": 1_700_000_000_000 + i,
        }
        fastavro.schemaless_writer(stream, schema, row)
        found.append(stream.getvalue())
    return found


def spans(of: list[bytes]) -> tuple[UInt8s, Int64s, Int64s]:
    lengths = np.array([len(one) for one in of], np.int64)
    return padded(*of), np.cumsum(lengths) - lengths, lengths


def container(of: list[bytes]) -> bytes:
    """A file of one block."""
    text = json.dumps(WRITER).encode()
    data = b"".join(of)
    header = b"Obj\x01\x02\x16avro.schema" + varint(len(text)) + text + b"\x00" + SYNC
    return header + varint(len(of)) + varint(len(data)) + data + SYNC


def varint(number: int) -> bytes:
    number, out = number << 1, bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def measured(name: str, count: int, run: Callable[[], Any]) -> None:
    run()  # compiles
    best = min(timed(run) for _ in range(3))
    print(f"{name:32} {count / best:>12,.0f} records/s of CPU time")


def timed(run: Callable[[], Any]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--records", type=int, default=200_000)
    count = arguments.parse_args().records
    given = values(count)
    records = spans(given)
    schema = parsed("its schema", json.dumps(WRITER))
    by_column = planned(schema, COLUMNS)
    measured("compiled loops", count, lambda: by_column.decode(*records, COLUMNS))
    block = records[0], np.array([0, sum(map(len, given))]), np.array([count])
    measured("the same, of a block of a file", count, lambda: by_column.blocks(*block, COLUMNS))
    by_record = ByRecord("its schema", schema.plain, read_as(schema, COLUMNS))
    measured("fastavro, record by record", count, lambda: by_record.decode(*records, COLUMNS))
    if importlib.util.find_spec("polars"):
        import polars  # type: ignore[import-not-found, unused-ignore]

        file = container(given)
        measured("polars, one block of a file", count, lambda: polars.read_avro(io.BytesIO(file)))


if __name__ == "__main__":
    main()
