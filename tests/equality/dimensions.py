"""In which ways a simulated pipeline runs, besides its parallelism and the faults of a seed.

Nearly every fault lies where two of these meet, so each mode is tried with each width at every commit. A new
dimension is one more table here and one more field of `Way`, with what it changes in `config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

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
    "changed": {},  # one vertex, by hand
    "narrowed": {  # to the slots that a lost worker leaves, and back again
        "jobmanager.scheduler": "adaptive",
        f"{_PREFIX}.submission.resource-wait-timeout": "5 min",
        f"{_PREFIX}.submission.resource-stabilization-timeout": "0 ms",
        f"{_PREFIX}.executing.cooldown-after-rescaling": "0 ms",
        f"{_PREFIX}.executing.resource-stabilization-timeout": "0 ms",
    },
}


@dataclass(frozen=True, slots=True)
class Way:
    """One of `MODES` and one of `WIDTHS`; prints as both."""

    mode: str
    width: str

    def __str__(self) -> str:
        return f"{self.mode}, {self.width}"

    @property
    def config(self) -> Mapping[str, str]:
        return MODES[self.mode] | WIDTHS[self.width]

    @property
    def rescales(self) -> bool:
        return self.width == "changed"

    @property
    def counts_once(self) -> bool:
        """Also with faults, the rows are exactly those of the model. Otherwise some may come twice."""
        return self.mode != "at least once"

    def may_fail(self, pipeline: Pipeline) -> bool:
        """The model knows what a run with faults gives: not what functions with state, and windows, make of
        rows that come twice."""
        return self.counts_once or not any(isinstance(step, Process | Window) for step in pipeline.steps)


WAYS: Final = [
    *(Way(mode, width) for mode, width in product(MODES, WIDTHS) if mode != "batch"),
    Way("batch", "kept"),  # a bounded job has no checkpoint from which it could go on with another one
]
