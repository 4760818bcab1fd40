"""How fast is JSON read? Rows of some 145 bytes with six columns: two integers, a float, two texts, a time.

    python -m benchmarks.json_read decode        one thread, blocks of 4 MB, and pyarrow's reader
    python -m benchmarks.json_read filter        files -> filter, two of six columns -> blackhole, by slope
    python -m benchmarks.json_read count         files -> windowed count by key -> blackhole, by slope
    python -m benchmarks.json_read count --per-second 200
    python -m benchmarks.json_read count --target duckdb    the same query by DuckDB

Windows have 10 s, and the rows come as in `benchmarks.windowed_count`: 10,000 for each second of event time,
so some ten for each key in a window. With 200 a second hardly two rows of a window have one key: there are
nearly as many results as rows.

`decode` prints rows for each second of processor time: all columns, two of six, one bad row in ten, and both
forms of time in one column. The other two count whole process trees. One JSON line each.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from benchmarks.harness import CACHE, by_slope

ROWS = 4_000_000
DECODED_ROWS = 400_000
BLOCK = 4 * 2**20
REPEATS = 5
KEYS = 10_000
PER_SECOND = 10_000  # rows, of event time
SCHEMA = pa.schema(
    [
        ("auction", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.float64()),
        ("channel", pa.string()),
        ("url", pa.string()),
        ("at", pa.timestamp("ms")),
    ]
)
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")


def lines(
    start: int, rows: int, *, bad_every: int = 0, mixed: bool = False, per_second: int = PER_SECOND
) -> bytes:
    """Rows [start, start + rows) of one endless file. `bad_every`: each so many-th has a text as its
    price."""
    random = np.random.Generator(np.random.Philox(key=[start, KEYS]))
    auctions, bidders = random.integers(0, KEYS, rows), random.integers(0, 1_000_000, rows)
    prices, places = random.integers(0, 100_000, rows), random.integers(0, 10_000, rows)
    millis = (np.arange(start, start + rows) * 1000 // per_second) + 1_767_225_600_000
    times = np.datetime_as_string(millis.astype("datetime64[ms]"))
    made = []
    for i in range(rows):
        price = '"free"' if bad_every and i % bad_every == 0 else f"{prices[i] / 100}"
        at = f"{millis[i]}" if mixed and i % 2 else f'"{times[i]}"'
        made.append(
            f'{{"auction":{auctions[i]},"bidder":{bidders[i]},"price":{price},"channel":"{CHANNELS[i % 4]}",'
            f'"url":"https://www.nexmark.com/item.htm?q={places[i]}","at":{at}}}\n'
        )
    return "".join(made).encode()


def data_file(rows: int, per_second: int) -> Path:
    """The input, made once and kept."""
    path = CACHE / f"bids-of-text-{per_second}-{rows}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            for start in range(0, rows, DECODED_ROWS):
                file.write(lines(start, min(DECODED_ROWS, rows - start), per_second=per_second))
        part.rename(path)
    return path


# --- decoding alone -------------------------------------------------------------------------------


def decode() -> None:
    from unistream.connector.common import JsonReader, line_spans, padded, warm_up_json

    warm_up_json()
    cases = {"good": {}, "one bad row in ten": {"bad_every": 10}, "both forms of time": {"mixed": True}}
    for case, options in cases.items():
        blocks = _blocks(lines(0, DECODED_ROWS, **options))  # type: ignore[arg-type]
        for columns in (None, ("auction", "price")):
            reader = JsonReader(SCHEMA, columns)

            def read(content: bytes, reader: JsonReader = reader) -> None:
                data = padded(content)
                reader.read(data, *line_spans(data, len(content)))

            _print(case, "unistream", columns, read, blocks)
            if not options:
                _print(case, "pyarrow", columns, _by_arrow(columns), blocks)


def _by_arrow(columns: Sequence[str] | None) -> Callable[[bytes], None]:
    schema = pa.schema([field for field in SCHEMA if columns is None or field.name in columns])
    parse = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def read(content: bytes) -> None:
        options = pj.ReadOptions(use_threads=False, block_size=len(content) + 1)
        pj.read_json(pa.BufferReader(content), options, parse)

    return read


def _blocks(content: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(content):
        end = content.rfind(b"\n", at, at + BLOCK) + 1
        found.append(content[at:end])
        at = end
    return found


def _print(
    case: str, reader: str, columns: Sequence[str] | None, read: Callable[[bytes], None], blocks: list[bytes]
) -> None:
    best = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        for block in blocks:
            read(block)
        best = min(best, time.process_time() - began)
    facts = {
        "benchmark": "json_read",
        "reader": reader,
        "rows": case,
        "columns": len(columns) if columns else len(SCHEMA),
        "row_bytes": round(sum(map(len, blocks)) / DECODED_ROWS),
        "rows_per_cpu_s": round(DECODED_ROWS / best),
    }
    print(json.dumps(facts), flush=True)


# --- pipelines ------------------------------------------------------------------------------------


def job(what: str, rows: int, per_second: int, parallelism: int, target: str) -> None:
    """One run, to its end."""
    import unistream as us

    config = {"execution.runtime-mode": "STREAMING", "parallelism.default": str(parallelism)}
    env = us.Environment(config, target=target)
    source = us.FileSource(str(data_file(rows, per_second)), format="json", schema=SCHEMA, in_order=True)
    run(env, source, what)


def run(env: Any, source: Any, what: str) -> None:
    """Reads bids to their end, and counts or filters them.

    Raises:
        SystemExit: the job failed, or rows were late.
    """
    import unistream as us

    strategy = us.WatermarkStrategy.no_watermarks()
    if what == "count":
        strategy = us.WatermarkStrategy.for_bounded_out_of_orderness("4 s").with_timestamp_column("at")
    bids = env.from_source(source, strategy, "bids").uid("bids")
    if what == "filter":
        found = bids.filter(us.col("price") > 500.0).select("auction", "price")
    else:
        found = bids.key_by("auction").window(us.TumblingEventTimeWindows.of("10 s")).aggregate(n=us.count())
    found.sink_to(us.BlackholeSink()).uid("sink")
    result = env.execute(what)
    if result.state != "FINISHED" or result.late_rows:
        raise SystemExit(f"the job is {result.state}: {result.failure or result.late_rows}")


def in_duckdb(what: str, rows: int, per_second: int, threads: int) -> None:
    """The same by DuckDB's reader, to know what the machine can do at the moment."""
    import duckdb

    numbers = "auction: 'BIGINT', bidder: 'BIGINT', price: 'DOUBLE'"
    columns = "{" + numbers + ", channel: 'VARCHAR', url: 'VARCHAR', \"at\": 'TIMESTAMP'}"
    bids = f"read_json('{data_file(rows, per_second)}', format='newline_delimited', columns={columns})"
    found = f"SELECT auction, price FROM {bids} WHERE price > 500"
    if what == "count":
        window = "time_bucket(INTERVAL '10 seconds', \"at\")"
        found = f"SELECT auction, {window} AS start, count(*) AS n FROM {bids} GROUP BY auction, start"
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {threads}")
        connection.execute(f"SELECT count(*) FROM ({found} OFFSET 1)").fetchall()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["decode", "filter", "count"])
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--target", choices=["local", "spark", "duckdb"], default="local")
    parser.add_argument("--rows", type=int, help="run the job once over so many rows, without measuring")
    parser.add_argument("--per-second", type=int, default=PER_SECOND, help="rows, of event time")
    options = parser.parse_args(arguments)
    if options.what == "decode":
        decode()
    elif options.rows and options.target == "duckdb":
        in_duckdb(options.what, options.rows, options.per_second, options.parallelism)
    elif options.rows:
        job(options.what, options.rows, options.per_second, options.parallelism, options.target)
    else:
        for needed in (ROWS, 4 * ROWS):
            data_file(needed, options.per_second)
        by_slope(
            [
                *("benchmarks.json_read", options.what),
                *("--parallelism", str(options.parallelism), "--target", options.target),
                *("--per-second", str(options.per_second)),
            ],
            rows=ROWS,
            labels={
                "benchmark": "json_read",
                "engine": "duckdb" if options.target == "duckdb" else f"unistream/{options.target}",
                "work": options.what,
                "parallelism": options.parallelism,
                "rows_per_second_of_event_time": options.per_second,
            },
        )


if __name__ == "__main__":
    sys.exit(main())
