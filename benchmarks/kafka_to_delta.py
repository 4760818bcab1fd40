"""How fast is Kafka JSON -> Delta, end to end, with a checkpoint every 2 s?

    python -m benchmarks.kafka_to_delta

Reads the flights (about 150 bytes of JSON each) from a real broker with 4 partitions, and appends every row
to a Delta table. The topic is filled before the clock starts. One JSON line.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import by_slope
from dagster_defs.demo.producer import publish
from dagster_defs.messages import MESSAGE

FLIGHTS_A_YEAR = 336_776
YEARS = 2  # the small run; the large one reads four times as many
PARTITIONS = 4


def job(bootstrap: str, topic: str, parallelism: int, target: str) -> None:
    """One run over what the topic holds now."""
    import unistream as us

    with tempfile.TemporaryDirectory() as folder:
        env = us.Environment(
            {
                "execution.runtime-mode": "STREAMING",
                "parallelism.default": str(parallelism),
                "execution.checkpointing.interval": "2 s",
                "execution.checkpointing.dir": f"{folder}/checkpoints",
            },
            target=target,
        )
        source = us.KafkaSource(bootstrap_servers=bootstrap, topic=topic, schema=MESSAGE, bounded=True)
        watermarks = us.WatermarkStrategy.for_bounded_out_of_orderness("30 min")
        env.from_source(source, watermarks.with_timestamp_column("scheduled"), name="flights").uid(
            "flights"
        ).sink_to(us.DeltaSink(f"{folder}/lake")).uid("lake")
        result = env.execute("kafka to delta")
        if result.state != "FINISHED":
            raise SystemExit(f"the job is {result.state}: {result.failure}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--target", choices=["local", "spark"], default="local")
    parser.add_argument("--bootstrap", help="with --rows: run the job once, without measuring")
    parser.add_argument("--rows", type=int, help="rows of the topic to read: picks the topic")
    options = parser.parse_args(arguments)
    if options.bootstrap:
        job(options.bootstrap, f"flights-{options.rows}", options.parallelism, options.target)
        return

    from unistream.testing.devtools.kafka_tools import create_topic
    from unistream.testing.devtools.stack import LocalStack

    rows = YEARS * FLIGHTS_A_YEAR
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalStack(Path(folder) / "stack", ["kafka"]) as stack,
    ):
        bootstrap = stack.address("kafka")
        for repeat in (YEARS, 4 * YEARS):
            topic = f"flights-{repeat * FLIGHTS_A_YEAR}"
            create_topic(bootstrap, topic, PARTITIONS)
            publish(bootstrap, topic, seconds=0, repeat=repeat, seed=7)
        by_slope(
            [
                *("benchmarks.kafka_to_delta", "--bootstrap", bootstrap),
                *("--parallelism", str(options.parallelism), "--target", options.target),
            ],
            rows=rows,
            labels={
                "benchmark": "kafka_to_delta",
                "engine": f"unistream/{options.target}",
                "format": "json",
                "keys": 0,
                "parallelism": options.parallelism,
            },
        )


if __name__ == "__main__":
    sys.exit(main())
