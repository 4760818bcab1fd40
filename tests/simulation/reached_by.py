"""Seeds that reach the rare branches: a batch plays them first, so that it needs few others.

    python -m tests.simulation.reached_by [--masters]       looks for them, and writes the file again

The file is only a hint. Where the code runs another way now, and none of its seeds reaches a branch any more,
a batch looks for another one, which costs time.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support import masters
from tests.support.masters.run import run_seed as run_masters
from tests.support.seeds.batch import REQUIRED_MARKS, Report, RunSeed, run_batch
from unistream.testing.sim.run import SeedOutcome, run_seed

HERE: Final = Path(__file__).parent
AT_NIGHT: Final = os.environ.get("UNISTREAM_SIM_NIGHT") == "1"
TWICE: Final = 2  # seeds for each branch, so that one of them may become another run
SEARCHED_MAX: Final = 600


def seeds(gate: int, night: int) -> range:
    """As many as are played at each commit, or at night (`make sim-nightly`)."""
    return range(night if AT_NIGHT else gate)


@dataclass(frozen=True, slots=True)
class Batch:
    """Runs of one kind. `known`, `regressions`: files of seeds; `required`: branches that it has to reach."""

    run: RunSeed
    known: Path
    regressions: Path
    required: Sequence[str]
    command: str

    def play(self, others: Iterable[int]) -> Report:
        """Seeds that once failed, those that reach rare branches, and `others`; then more of them, until each
        branch is reached."""
        played = list(dict.fromkeys([*listed(self.regressions), *listed(self.known), *others]))
        report = run_batch(played, jobs=2 if AT_NIGHT else 1, run=self.run, command=self.command)
        for seed in range(SEARCHED_MAX):
            if not report.unreached(self.required):
                break
            if seed not in played:
                report.add(self.run(seed))
        return report


SINGLE: Final = Batch(run_seed, HERE / "reached_by.txt", HERE / "regressions.txt", REQUIRED_MARKS, "make sim")
MASTERS: Final = Batch(
    run_masters,
    HERE / "reached_by_masters.txt",
    HERE / "regressions_masters.txt",
    masters.REQUIRED_MARKS,
    "make sim-masters",
)


def listed(file: Path) -> list[int]:
    """The numbers at the beginning of its lines."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def chosen(
    outcomes: Iterable[SeedOutcome], required: Iterable[str], anyway: Iterable[int]
) -> list[tuple[int, str]]:
    """Few and short runs that reach each branch `TWICE`, if there are any, with those that are played
    `anyway`; and the rarest branch that each adds."""
    by_seed = {one.seed: one for one in outcomes if one.violation is None}
    common = Counter(mark for one in by_seed.values() for mark in one.marks)
    wanted = {mark: min(TWICE, common[mark]) for mark in required}

    def gain(one: SeedOutcome) -> list[str]:
        return [mark for mark in sorted(one.marks) if wanted.get(mark, 0) > 0]

    def take(seed: int) -> list[str]:
        found = gain(one := by_seed.pop(seed))
        wanted.update({mark: wanted[mark] - 1 for mark in one.marks if mark in wanted})
        return found

    for seed in anyway:
        take(seed)
    found = []
    while any(left > 0 for left in wanted.values()):
        best = max(by_seed.values(), key=lambda one: (len(gain(one)) / one.events, -one.seed))
        found.append((best.seed, min(take(best.seed), key=lambda mark: common[mark])))
    return sorted(found)


def main(words: list[str]) -> None:
    batch = MASTERS if "--masters" in words else SINGLE
    again = listed(batch.regressions)
    outcomes: list[SeedOutcome] = []
    played = list(dict.fromkeys([*again, *range(SEARCHED_MAX)]))
    report = run_batch(played, jobs=2, run=batch.run, watch=lambda outcome, _: outcomes.append(outcome))
    lines = [f"{seed:<6d} {mark}\n" for seed, mark in chosen(outcomes, batch.required, again)]
    batch.known.write_text("".join(lines), encoding="utf-8")
    print(report.text(), "never reached:", report.unreached(batch.required))


if __name__ == "__main__":
    main(sys.argv[1:])
