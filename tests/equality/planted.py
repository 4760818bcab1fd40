"""Bugs that are planted on purpose: the property has to find each.

One private place is replaced for a block, in this process, in which the simulated cluster runs too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from tests.equality.run import BATCH, STREAMING
from tests.support.mutants import MUTANTS
from unistream.api.stream import DataStream
from unistream.model.elements import Batch
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator import lookup_table
from unistream.operator.process.timer_table import KeyedTimers
from unistream.operator.window import local
from unistream.worker.exchange import shipping
from unistream.worker.sort import sorter
from unistream.worker.task.split_watermarks import SplitWatermarks


@dataclass(frozen=True, slots=True)
class Planted:
    """`mode`: in which it can be seen."""

    lesson: str
    mode: Mapping[str, str]
    plant: Callable[[pytest.MonkeyPatch], None]


def ties_are_dropped(patch: pytest.MonkeyPatch) -> None:
    real = sorter.sorted_order

    def sorted_order(codes: Any, times: Any) -> Any:
        order = real(codes, times)
        same = (np.diff(codes[order]) == 0) & (np.diff(times[order]) == 0)
        return order[np.concatenate(([True], ~same))]

    patch.setattr(sorter, "sorted_order", sorted_order)


def bound_is_inclusive(patch: pytest.MonkeyPatch) -> None:
    real = local.pane_ends_of

    def pane_ends_of(operator: Any, batch: Batch, windows: Any) -> Any:
        return real(operator, Batch(batch.records, pc.subtract(batch.timestamps, 1)), windows)

    patch.setattr(local, "pane_ends_of", pane_ends_of)


def union_has_one_input(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DataStream, "union", lambda self, *_: DataStream(self._builder, self._ports, self.schema))


def zeros_differ(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shipping, "canonical_keys", lambda records, _: records)


def timers_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeyedTimers, "delete", lambda *_: None)


def first_of_equal_wins(patch: pytest.MonkeyPatch) -> None:
    real = lookup_table._PositionsByKey.__init__

    def init(self: Any, keys: Any) -> None:
        real(self, keys)
        self._counts = np.minimum(self._counts, 1)

    patch.setattr(lookup_table._PositionsByKey, "__init__", init)


def disorder_is_ignored(patch: pytest.MonkeyPatch) -> None:
    real = SplitWatermarks.__init__

    def init(self: Any, strategy: WatermarkStrategy, **rest: Any) -> None:
        real(self, replace(strategy, out_of_orderness_ms=0), **rest)

    patch.setattr(SplitWatermarks, "__init__", init)


def finishes_again(patch: pytest.MonkeyPatch) -> None:
    for owner, name, replacement in MUTANTS["finishes-again"].patches():
        patch.setattr(owner, name, replacement)


PLANTED = {
    "ties": Planted("a sort drops rows of the same key and time", BATCH, ties_are_dropped),
    "bound": Planted("a row at the bound of two windows is in the one before", STREAMING, bound_is_inclusive),
    "union": Planted("a union loses an input", STREAMING, union_has_one_input),
    "zeros": Planted("-0.0 and 0.0 are two keys", STREAMING, zeros_differ),
    "timers": Planted("a deleted timer fires", STREAMING, timers_stay),
    "early": Planted("a watermark does not wait for the allowed disorder", STREAMING, disorder_is_ignored),
    "finish": Planted("a task restored behind `finish` calls it again", STREAMING, finishes_again),
    "first": Planted("of equal keys of a dimension only one row counts", BATCH, first_of_equal_wins),
}
