"""In which ways a simulated pipeline runs, besides the faults of a seed.

Nearly every fault lies where two of these meet, so at every commit each value of a dimension meets each value
of every other one (`pairwise`), in few runs; at night the rest is drawn. A new dimension is one more table
here, in `DIMENSIONS`, with what it changes in `Way.config`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final

from tests.equality.operators import OPERATORS
from tests.equality.pipelines import Pipeline, Process, Window
from tests.equality.run import BATCH, STREAMING

MODES: Final[Mapping[str, Mapping[str, str]]] = {
    "aligned": STREAMING,
    "unaligned": STREAMING | {"execution.checkpointing.unaligned.enabled": "true"},
    "at least once": STREAMING | {"execution.checkpointing.mode": "AT_LEAST_ONCE"},
    "batch": BATCH,
}
_PREFIX: Final = "jobmanager.adaptive-scheduler"
WIDTHS: Final[Mapping[str, Mapping[str, str]]] = {
    "kept": {},
    "changed": {},  # one vertex, by hand; a bounded job refuses, and goes on
    "narrowed": {  # to the slots that a lost worker leaves, and back again
        "jobmanager.scheduler": "adaptive",
        f"{_PREFIX}.submission.resource-wait-timeout": "5 min",
        f"{_PREFIX}.submission.resource-stabilization-timeout": "0 ms",
        f"{_PREFIX}.executing.cooldown-after-rescaling": "0 ms",
        f"{_PREFIX}.executing.resource-stabilization-timeout": "0 ms",
    },
}
BACKENDS: Final[Mapping[str, Mapping[str, str]]] = {
    name: {"state.backend.type": name} for name in ("hashmap", "rocksdb")
}
PARALLELISM: Final = ("1", "2", "3")


@dataclass(frozen=True, slots=True)
class Way:
    """One value of each dimension but the pipeline; prints as them."""

    mode: str
    width: str
    backend: str
    parallelism: str

    def __str__(self) -> str:
        return f"{self.mode}, {self.width}, {self.backend}, {self.parallelism}"

    @property
    def config(self) -> Mapping[str, str]:
        options = {**MODES[self.mode], **WIDTHS[self.width], **BACKENDS[self.backend]}
        return {**options, "parallelism.default": self.parallelism}

    @property
    def is_batch(self) -> bool:
        return self.mode == "batch"

    @property
    def rescales(self) -> bool:
        return self.width == "changed"

    @property
    def counts_once(self) -> bool:
        """Also with faults, the rows are exactly those of the model. Otherwise some may come twice."""
        return self.mode != "at least once"

    @property
    def is_possible(self) -> bool:
        """A bounded job has few keys at a time, and its state in memory."""
        return not self.is_batch or self.backend == "hashmap"

    def may_fail(self, pipeline: Pipeline) -> bool:
        """The model knows what a run with faults gives: not what functions with state, and windows, make of
        rows that come twice."""
        return self.counts_once or not any(isinstance(step, Process | Window) for step in pipeline.steps)


WAYS: Final = [
    way for values in product(MODES, WIDTHS, BACKENDS, PARALLELISM) if (way := Way(*values)).is_possible
]
DIMENSIONS: Final[Sequence[Iterable[str]]] = (OPERATORS, MODES, WIDTHS, BACKENDS, PARALLELISM)


def pairwise(
    dimensions: Sequence[Iterable[str]], is_possible: Callable[[Sequence[str]], bool]
) -> list[tuple[str, ...]]:
    """Few rows, with a value of each dimension, in which each two values meet that can; none is much rarer.

    >>> pairwise(["ab", "xy"], lambda row: row != ("b", "y"))
    [('a', 'x'), ('a', 'y'), ('b', 'x')]
    """
    rows = [row for row in product(*dimensions) if is_possible(row)]
    missing = {pair for row in rows for pair in _pairs(row)}
    used: Counter[tuple[int, str]] = Counter()
    found = []
    while missing:
        best = max(
            rows, key=lambda row: (len(missing & _pairs(row)), -sum(used[one] for one in enumerate(row)))
        )
        missing -= _pairs(best)
        used.update(enumerate(best))
        found.append(best)
    return found


def _pairs(row: Sequence[str]) -> set[tuple[tuple[int, str], ...]]:
    return set(combinations(enumerate(row), 2))


ROWS: Final = pairwise(DIMENSIONS, lambda row: Way(*row[1:]).is_possible)
"""Name of an operator, and the rest of a `Way`."""
