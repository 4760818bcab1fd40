"""Publishes the flights to Kafka as JSON, keyed by carrier, at a steady rate.

    python -m dagster_defs.demo.producer --bootstrap 127.0.0.1:9092 --seconds 20

Prints one line when all is published and acknowledged.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime

import pyarrow as pa
from kafka import KafkaProducer

from dagster_defs.demo.data import RECORDED, messages

PACE_ROWS = 500
"""Rows between two looks at the clock: fine enough to be steady, coarse enough to cost nothing."""


def waits(
    scheduled: pa.ChunkedArray, seconds: float, at_once_until: date | None, now_s: float
) -> list[float]:
    """When each PACE_ROWS-th message is published, in seconds from the start.

    Args:
        scheduled: Departures, in the order of the messages.
        seconds: How long all of them take, at a steady rate.
        at_once_until: Those that depart before it are there at the start, and none is published before it has
            departed. None: neither.
        now_s: The start, in seconds since 1970.
    """
    rows, departed = (
        len(scheduled),
        scheduled[::PACE_ROWS].cast(pa.timestamp("s")).cast(pa.int64()).to_pylist(),
    )
    steady = [seconds * row / rows for row in range(0, rows, PACE_ROWS)]
    if at_once_until is None:
        return steady
    begin = datetime(at_once_until.year, at_once_until.month, at_once_until.day, tzinfo=UTC).timestamp()
    begun = next((due for due, at_s in zip(steady, departed, strict=True) if at_s >= begin), math.inf)
    return [max(due - begun, at_s - now_s, 0.0) for due, at_s in zip(steady, departed, strict=True)]


def publish(
    bootstrap: str,
    topic: str,
    *,
    seconds: float,
    repeat: int,
    seed: int,
    since: date = RECORDED,
    at_once_until: date | None = None,
    timeout_s: float = 60.0,
) -> int:
    """Publishes every message once and in order; returns how many.

    Args:
        bootstrap: ``host:port`` of a broker.
        topic: Must exist.
        seconds: How long to take at least; 0 = as fast as it goes.
        repeat: Times the year is published, shifted by a year each.
        seed: Of the disorder.
        since: The first day.
        at_once_until: As `waits` has it.
        timeout_s: Longest wait for the last acknowledgements.
    """
    table = messages(repeat=repeat, seed=seed, since=since)
    due_s = waits(table["scheduled"], seconds, at_once_until, time.time())
    keys = [key.encode() for key in table["key"].to_pylist()]
    values = [value.encode() for value in table["value"].to_pylist()]
    # idempotent: a retried request neither doubles nor reorders what the truth counts on
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=20, batch_size=256 * 1024
    )
    try:
        started = time.monotonic()
        for sent, (key, value) in enumerate(zip(keys, values, strict=True)):
            if sent % PACE_ROWS == 0:
                time.sleep(max(0.0, started + due_s[sent // PACE_ROWS] - time.monotonic()))
            producer.send(topic, key=key, value=value)
        producer.flush(timeout=timeout_s)
    finally:
        producer.close(timeout=timeout_s)
    return len(keys)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Publish a year of flights to Kafka.")
    parser.add_argument("--bootstrap", required=True, help="host:port of a broker")
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to take; 0 = at full speed")
    parser.add_argument("--repeat", type=int, default=1, help="publish the year this many times")
    parser.add_argument("--seed", type=int, default=7, help="of the disorder")
    parser.add_argument("--since", type=date.fromisoformat, default=RECORDED, help="the first day")
    parser.add_argument(
        "--at-once-until",
        type=date.fromisoformat,
        help="flights of before that day are there at once; later ones come no earlier than they depart",
    )
    options = parser.parse_args(arguments)
    count = publish(
        options.bootstrap,
        options.topic,
        seconds=options.seconds,
        repeat=options.repeat,
        seed=options.seed,
        since=options.since,
        at_once_until=options.at_once_until,
    )
    print(f"published {count} flights to {options.topic}", flush=True)


if __name__ == "__main__":
    main()
