"""What does one master cost: per worker, subtask, channel, checkpoint and job?

    python -m benchmarks.scale                                  every scenario, in full size
    python -m benchmarks.scale heartbeats --workers 200
    python -m benchmarks.scale subtasks --subtasks 2000 --workers 100 --json
    python -m benchmarks.scale jobs --jobs 50 --ha zookeeper

The master is a process of its own, started by `unistream cluster start`. Its workers are simulated: few
processes with very many identities each, which speak the real protocol over the real connections and run
nothing (`benchmarks/scale_workers.py`). They share the machine with the master: its processor time is
measured apart, seconds are those of both. What is measured, and what the figures mean: docs/scale.md.

heartbeats  workers register, and each sends and answers heartbeats
subtasks    a job of many subtasks is deployed, takes a checkpoint, loses one region, is cancelled
exchange    a job with an all-to-all edge of --width x --width channels is deployed, restarts, is cancelled
jobs        many jobs in a session cluster, with their checkpoints; then its leader is killed
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.scale_measure import Row, bars, table
from benchmarks.scale_scenarios import SCENARIOS, Sizes


def whole(text: str) -> int:
    """A number from 1 on."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return number


def seconds(text: str) -> float:
    """A time above 0."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return found


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.scale",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    made.add_argument("scenarios", nargs="*", metavar="scenario", help=", ".join(SCENARIOS))
    made.add_argument("--workers", type=whole, default=1000)
    made.add_argument("--subtasks", type=whole, default=20_000, help="of the job with many (20000)")
    made.add_argument("--width", type=whole, default=1000, help="subtasks on each side of the edge (1000)")
    made.add_argument("--jobs", type=whole, default=500)
    made.add_argument("--processes", type=whole, default=1, help="in which the workers are (1)")
    made.add_argument("--interval", type=seconds, default=10.0, help="heartbeat.interval, seconds (10)")
    made.add_argument("--checkpoint-interval", type=seconds, default=60.0, help="of the jobs, seconds (60)")
    made.add_argument("--steady", type=seconds, default=30.0, help="seconds of a look at rest, at least (30)")
    made.add_argument("--timeout", type=seconds, default=300.0, help="of each wait, seconds (300)")
    made.add_argument("--ha", choices=("folder", "zookeeper"), default="folder", help="where the jobs are")
    made.add_argument("--metadata", help="URL of the database for their history (SQLite, in the folder)")
    made.add_argument("--json", action="store_true", help="one JSON object for each step, instead of a table")
    return made


def sizes_of(options: argparse.Namespace) -> Sizes:
    return Sizes(
        workers=options.workers,
        subtasks=options.subtasks,
        width=options.width,
        jobs=options.jobs,
        processes=options.processes,
        interval_s=options.interval,
        checkpoint_s=options.checkpoint_interval,
        steady_s=options.steady,
        timeout_s=options.timeout,
        ha=options.ha,
        metadata=options.metadata,
    )


def main(words: Sequence[str] | None = None) -> int:
    made = parser()
    options = made.parse_args(words)
    unknown = [name for name in options.scenarios if name not in SCENARIOS]
    if unknown:
        made.error(f"there is no scenario {unknown[0]!r}; there are {', '.join(SCENARIOS)}")
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # closes what was started
    rows: list[Row] = []
    with bars() as screen:
        for name in options.scenarios or SCENARIOS:
            with tempfile.TemporaryDirectory(prefix="us-scale-") as folder:
                for row in SCENARIOS[name](sizes_of(options), Path(folder), screen):
                    rows.append(row)
                    if options.json:
                        print(json.dumps(row.as_json()), flush=True)
    if not options.json:
        Console(width=None if sys.stdout.isatty() else 160).print(table(rows))
        for row in rows:
            for miss in row.missed:
                print(f"missed: {miss}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; all that was started has ended")
