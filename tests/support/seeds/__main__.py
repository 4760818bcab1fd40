"""Runs seeds: ``python -m tests.support.seeds --seed 7 --story``, ``--seeds 0:2000 --jobs 2``.

``--masters``: seeds of clusters with several masters and a ZooKeeper.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Self

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

from tests.support.masters import REQUIRED_MARKS as MARKS_OF_MASTERS
from tests.support.masters.mutants import MUTANTS as MUTANTS_OF_MASTERS
from tests.support.masters.run import run_seed as run_masters
from tests.support.mutants import MUTANTS, Mutant, plant
from tests.support.seeds.batch import REQUIRED_MARKS, Report, run_batch
from unistream.testing.sim.run import SeedOutcome, run_seed

MARKS_FROM = 1_000  # seeds; a smaller batch need not reach every rare branch
REPORT_EVERY = 1_000  # seeds, without a terminal


@dataclass(frozen=True, slots=True)
class Runs:
    """One kind of clusters. `command`: replays a seed."""

    play: Callable[..., SeedOutcome]
    marks: Sequence[str]
    mutants: Mapping[str, Mutant]
    command: str


ONE_MASTER: Final = Runs(run_seed, REQUIRED_MARKS, MUTANTS, "make sim")
SEVERAL_MASTERS: Final = Runs(run_masters, MARKS_OF_MASTERS, MUTANTS_OF_MASTERS, "make sim-masters")


class Watched:
    """Shows the progress of a batch, and each failure at once."""

    def __init__(self, seeds: int, command: str) -> None:
        self._seeds = seeds
        self._command = command
        self._console = Console(stderr=True)
        columns = (*Progress.get_default_columns()[:-1], MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=self._console, disable=not self._console.is_terminal)

    def __enter__(self) -> Self:
        self._bar.start()
        self._task = self._bar.add_task("seeds", total=self._seeds)
        return self

    def __exit__(self, *_failure: object) -> None:
        self._bar.stop()

    def __call__(self, outcome: SeedOutcome, report: Report) -> None:
        if outcome.violation is not None:
            self._console.print(f"{self._command} SEED={outcome.seed}   # {outcome.violation}", markup=False)
        self._bar.advance(self._task)
        if not self._console.is_terminal and report.seeds % REPORT_EVERY == 0:
            failed = len(report.failed)
            self._console.print(f"{report.seeds}/{self._seeds} seeds, {failed} failed, {report.wall_s:.0f} s")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: every invariant held in every run."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.seeds", description=__doc__)
    parser.add_argument("--seed", type=int, help="one run")
    parser.add_argument("--seeds", help="A:B, from A up to B, without B")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--story", action="store_true", help="print the events of the run, with --seed")
    parser.add_argument("--masters", action="store_true", help="clusters with several masters")
    mutants = sorted({*MUTANTS, *MUTANTS_OF_MASTERS})
    parser.add_argument("--mutant", choices=mutants, metavar="BUG", help="plant this bug, with --seed")
    chosen = parser.parse_args(arguments)
    runs = SEVERAL_MASTERS if chosen.masters else ONE_MASTER
    if (chosen.seed is None) == (chosen.seeds is None):
        parser.error("give --seed N or --seeds A:B")
    if chosen.mutant is not None and chosen.mutant not in runs.mutants:
        parser.error(f"--mutant: one of {', '.join(sorted(runs.mutants))}, not {chosen.mutant}")
    if chosen.seed is not None:
        return _one(runs, chosen.seed, story=chosen.story, mutant=chosen.mutant)
    return _many(runs, chosen.seeds, chosen.jobs, parser)


def _one(runs: Runs, seed: int, *, story: bool, mutant: str | None) -> int:
    with ExitStack() as stack:
        if mutant is not None:
            stack.enter_context(plant(runs.mutants[mutant]))
        outcome = runs.play(seed, story=story)
    print("\n".join(outcome.story) if story else outcome.scenario)
    print(f"seed {seed}: {outcome.violation or 'all invariants held'}")
    print(
        f"{outcome.events} events, {outcome.virtual_ms / 1000:.1f} virtual s, trace {outcome.trace_hash[:16]}"
    )
    return 1 if outcome.violation else 0


def _many(runs: Runs, text: str, jobs: int, parser: argparse.ArgumentParser) -> int:
    first, separator, last = text.partition(":")
    if not (separator and first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        parser.error(f"--seeds: A:B with A < B, not {text!r}")
    seeds = range(int(first), int(last))
    with Watched(len(seeds), runs.command) as watched:
        report = run_batch(seeds, jobs=jobs, watch=watched, run=runs.play, command=runs.command)
    print(report.text())
    for mark, count in sorted(report.marks.items(), key=lambda item: item[1]):
        print(f"{count:8d}  {mark}")
    unreached = report.unreached(runs.marks) if report.seeds >= MARKS_FROM else []
    for mark in unreached:
        print(f"NEVER     {mark}")
    return 1 if report.failed or unreached else 0


if __name__ == "__main__":
    sys.exit(main())
