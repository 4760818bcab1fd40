"""Runs many seeds in several processes: failures, speed, and the rare branches that were reached."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from unistream.testing.sim.run import SeedOutcome, run_seed

CHUNK = 5  # seeds that a process takes at a time
COLLECT_AFTER = (50_000, 20, 20)  # objects; see `gc.set_threshold`


@dataclass(slots=True)
class Report:
    """Results of a batch.

    Attributes:
        failed: Seeds with a violation, and the violation.
        marks: How many runs have reached each rare branch.
        command: Replays one seed.
    """

    seeds: int = 0
    failed: list[tuple[int, str]] = field(default_factory=list)
    marks: Counter[str] = field(default_factory=Counter)
    events: int = 0
    virtual_ms: float = 0.0
    wall_s: float = 0.0
    command: str = "make sim"

    def add(self, outcome: SeedOutcome) -> None:
        self.seeds += 1
        self.marks.update(outcome.marks)
        self.events += outcome.events
        self.virtual_ms += outcome.virtual_ms
        if outcome.violation is not None:
            self.failed.append((outcome.seed, outcome.violation))

    def unreached(self, required: Iterable[str]) -> list[str]:
        """Branches that no run has reached, and so the batch has not tested."""
        return [mark for mark in required if not self.marks[mark]]

    def text(self) -> str:
        lines = [
            f"{self.seeds} seeds, {len(self.failed)} failed, {self.events} events, "
            f"{self.virtual_ms / 3_600_000:.1f} virtual hours in {self.wall_s:.1f} s"
        ]
        lines += [f"  {self.command} SEED={seed}   # {violation}" for seed, violation in self.failed]
        return "\n".join(lines)


RunSeed = Callable[[int], SeedOutcome]
"""Plays a seed: of one module, so that other processes find it."""


def run_batch(
    seeds: Sequence[int],
    *,
    jobs: int = 1,
    watch: Callable[[SeedOutcome, Report], None] | None = None,
    run: RunSeed = run_seed,
    command: str = "make sim",
) -> Report:
    """Runs all of `seeds` in `jobs` processes; `watch` gets each outcome and the report so far. `command`:
    replays one of them."""
    report = Report(command=command)
    began_s = time.monotonic()
    for outcome in outcomes(seeds, jobs=jobs, run=run):
        report.add(outcome)
        report.wall_s = time.monotonic() - began_s
        if watch is not None:
            watch(outcome, report)
    report.failed.sort()
    return report


def outcomes(seeds: Sequence[int], *, jobs: int, run: RunSeed = run_seed) -> Iterator[SeedOutcome]:
    """Runs the seeds, and yields their outcomes in the order of their completion."""
    if jobs <= 1:
        yield from map(run, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=_collect_seldom) as pool:
        yield from pool.imap_unordered(run, seeds, chunksize=CHUNK)


def _collect_seldom() -> None:
    """A run creates many objects and few cycles; the default frequency costs 5 % of the time."""
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


REQUIRED_MARKS = (
    "AssignSplits was refused",
    "CancelTask was refused",
    "DeployTask was refused",
    "TriggerCheckpoint was refused",
    "a bundle was lost",
    "a cancelled job was restored from its snapshot",
    "a checkpoint refers to a file that was stored for an older one",
    "a commit covered several checkpoints",
    "a commit did not happen and its outcome is unknown",
    "a commit happened and its outcome is unknown",
    "a commit of an older leader was fenced",
    "a commit was repeated",
    "a consumer of a stored result was deployed",
    "a data stream broke",
    "a directory could not be made",
    "a heartbeat was refused",
    "a host could not stop a worker",
    "a job that had ended was submitted again",
    "a job was recovered by another leader",
    "a job was rescaled by hand",
    "a job was restored from a savepoint at another parallelism",
    "a job was redeployed narrower than before",
    "a job was redeployed wider than before",
    "a manifest refers to another copy of a shared file than its task",
    "a manifest was not written and its outcome is unknown",
    "a manifest was not written",
    "a manifest was written and its outcome is unknown",
    "a manifest was written twice",
    "a queued message was dropped with its worker",
    "a partition did not appear in time",
    "a report was repeated",
    "a request arrived after its timeout, or again",
    "a request came twice",
    "a request was lost",
    "a rescale was requested while a checkpoint was in flight",
    "a rescale was requested during a restart",
    "a rescale was refused at once",
    "a rescale was refused or failed",
    "a result could not be stored",
    "a run was completed",
    "a drain was refused",
    "a worker was drained",
    "the tasks of a worker had moved, and it ended",
    "a savepoint was completed",
    "a savepoint was refused or failed",
    "a shared file was removed",
    "a snapshot could not be removed",
    "a state file could not be read",
    "a state file could not be written",
    "a stopped job was restored from its snapshot",
    "a stored result was lost",
    "a stored result was released",
    "a sweep has removed shared files",
    "a suspend was completed",
    "a suspend was refused or failed",
    "a terminate was completed",
    "a terminate was refused or failed",
    "a worker did not start",
    "a worker lost its master",
    "a worker lost its lease",
    "a worker was killed",
    "a worker was lost for good",
    "a write of an older leader was fenced",
    "an adaptive job reached its full parallelism",
    "an answer was lost",
    "an old leader came back",
    "commands were performed twice",
    "messages shared a request",
    "one message of a bundle was refused, and another was not",
    "shared files of a late acknowledgement were removed",
    "splits could not be listed",
    "the answers to a bundle were lost",
    "the host did not report the end of a worker",
    "there was no place for a worker",
    "there was room for workers again",
    "user code failed in close",
    "user code failed in map",
    "user code failed in restore",
    "user code failed in snapshot",
    "what could not be removed was removed later",
)
"""Each must be reached by at least one run of a batch."""
