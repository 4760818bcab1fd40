"""How long does somebody wait: for another leader, for a list next to clusters that hang, for an end?

    python -m benchmarks.bounds                          all parts
    python -m benchmarks.bounds election spark --runs 1
    python -m benchmarks.bounds --table                  as `make bounds-nightly` does

What is promised to whoever waits is measured here: a test that asserts a time fails on a busy machine. One
JSON line for each: the least of the runs, since whatever else the machine does can only add to it, and what
is wanted. With --table they are a table at the end as well, and a bound that no run has kept is exit code 1.

election    a leader is followed, or leads again: sessions of 3 s, or of an hour where a notification counts
frozen      the server of the leader stands still, one of three
takeover    two masters and a worker of a user: the leader is killed
commands    next to clusters that stand still, hang, or were killed
sessions    a session cluster gets a second signal while a task does not end
spark       a BATCH job on Spark's engine is cancelled
store       a job is stopped while the object store with its checkpoints is away
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

Times = Mapping[str, float]
"""Seconds by bound, of one run."""

WANTED_S: Final[Mapping[str, Mapping[str, float]]] = {
    "election": {
        "a killed leader is followed": 8.0,  # its session of 3 s, and 5 s
        "a leader that stands still is followed": 8.0,
        "a leader that goes is followed": 3.0,  # by a notification
        "a leader whose node was removed leads again": 3.0,
        "a leader whose session was ended leads again": 3.0,
        "a leader that wakes up late leads again": 2.0,
    },
    "frozen": {"a leader at a server that stands still is followed": 15.0},
    "takeover": {
        "the next master leads": 8.0,
        "the worker is at the next master": 10.0,  # by ZooKeeper, not by heartbeat.timeout
        "the job runs at the next master": 20.0,
    },
    "commands": {
        "list --all next to ten clusters that hang": 8.0,  # 3 s for all of them together, and its own start
        "list next to a cluster that stands still": 8.0,
        "info next to a cluster that stands still": 8.0,
        "cancel next to a cluster that stands still": 8.0,
        "info, client.timeout 2 s, where the only cluster stands still": 8.0,
        "a run, client.timeout 2 s, whose cluster was killed": 10.0,
    },
    "sessions": {"a second signal ends a session cluster": 4.0},
    "spark": {"a BATCH job on Spark is cancelled": 30.0},
    "store": {"a stop without the object store is refused": 30.0},
}
"""Part -> bound -> what is wanted on an idle machine of two cores, in seconds."""

RUNS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The runs of one bound."""

    bound: str
    wanted_s: float
    runs_s: Sequence[float]

    @property
    def least_s(self) -> float:
        return min(self.runs_s)

    @property
    def is_kept(self) -> bool:
        return self.least_s <= self.wanted_s


def measured(part: str, runs: Sequence[Times]) -> list[Measured]:
    """One for each bound of the part; a run without one of them is a KeyError."""
    return [
        Measured(bound=bound, wanted_s=wanted_s, runs_s=[run[bound] for run in runs])
        for bound, wanted_s in WANTED_S[part].items()
    ]


def table(found: Sequence[Measured]) -> str:
    width = max(len(one.bound) for one in found)
    lines = [f"{'seconds':{width}s} wanted  least   most"]
    for one in found:
        late = "" if one.is_kept else "  TOO LONG"
        lines.append(
            f"{one.bound:{width}s} {one.wanted_s:6.1f} {one.least_s:6.1f} {max(one.runs_s):6.1f}{late}"
        )
    return "\n".join(lines)


def line(part: str, one: Measured) -> str:
    rounded = [round(run_s, 2) for run_s in one.runs_s]
    facts = {"benchmark": "bounds", "part": part, "bound": one.bound, "wanted_s": one.wanted_s}
    return json.dumps({**facts, "measured_s": round(one.least_s, 2), "kept": one.is_kept, "runs_s": rounded})


def part_of(name: str) -> Callable[[Path], Times]:
    """What measures it once, in an empty folder. They start servers, so their libraries are imported late."""
    file = "bounds_election" if name in ("election", "frozen", "takeover") else "bounds_ends"
    part: Callable[[Path], Times] = getattr(importlib.import_module(f"benchmarks.{file}"), name)
    return part


def run(part: str) -> Times:
    with tempfile.TemporaryDirectory(prefix="unistream-bounds-") as folder:
        return part_of(part)(Path(folder))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*WANTED_S, []], default=[])
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--table", action="store_true", help="also at the end; 1 if a bound was not kept")
    options = parser.parse_args(words)
    found: list[Measured] = []
    for part in options.parts or WANTED_S:
        of_part = measured(part, [run(part) for _ in range(options.runs)])
        for one in of_part:
            print(line(part, one), flush=True)
        found += of_part
    if not options.table:
        return 0
    print(table(found), flush=True)
    return 0 if all(one.is_kept for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
