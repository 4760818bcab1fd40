"""Publishes the flights to Kafka as JSON, keyed by carrier, at a steady rate.

    python -m dagster_defs.demo.producer --bootstrap 127.0.0.1:9092 --seconds 20

Prints one line when all is published and acknowledged.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from kafka import KafkaProducer

from dagster_defs.demo.data import messages

PACE_ROWS = 500
"""Rows between two looks at the clock: fine enough to be steady, coarse enough to cost nothing."""


def publish(
    bootstrap: str, topic: str, *, seconds: float, repeat: int, seed: int, timeout_s: float = 60.0
) -> int:
    """Publishes every message once and in order; returns how many.

    Args:
        bootstrap: ``host:port`` of a broker.
        topic: Must exist.
        seconds: How long to take at least; 0 = as fast as it goes.
        repeat: Times the year is published, shifted by a year each.
        seed: Of the disorder.
        timeout_s: Longest wait for the last acknowledgements.
    """
    table = messages(repeat=repeat, seed=seed)
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
                time.sleep(max(0.0, started + seconds * sent / len(keys) - time.monotonic()))
            producer.send(topic, key=key, value=value)
        producer.flush(timeout=timeout_s)
    finally:
        producer.close(timeout=timeout_s)
    return len(keys)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Publish the flights of 2013 to Kafka.")
    parser.add_argument("--bootstrap", required=True, help="host:port of a broker")
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to take; 0 = at full speed")
    parser.add_argument("--repeat", type=int, default=1, help="publish the year this many times")
    parser.add_argument("--seed", type=int, default=7, help="of the disorder")
    options = parser.parse_args(arguments)
    count = publish(
        options.bootstrap,
        options.topic,
        seconds=options.seconds,
        repeat=options.repeat,
        seed=options.seed,
    )
    print(f"published {count} flights to {options.topic}", flush=True)


if __name__ == "__main__":
    main()
