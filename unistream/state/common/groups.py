"""Rows of some key groups of a state's tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unistream.model.columns.arrow_layouts import filtered
from unistream.model.keyed_snapshot import StateTable
from unistream.model.snapshot import KEY_GROUP_COLUMN


def of_groups(batch: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    """Rows of key groups first to last, inclusive."""
    groups = _groups(batch)
    if len(groups) == 0 or (groups.min() >= first and groups.max() <= last):
        return batch
    return filtered(batch, (groups >= first) & (groups <= last))


def groups_in(parts: Iterable[StateTable]) -> npt.NDArray[np.uint16]:
    """Key groups with rows, of tables in memory."""
    found = [_groups(batch) for part in parts for batch in part.batches]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.uint16)


def without_groups(part: StateTable, groups: npt.NDArray[np.uint16]) -> StateTable:
    """A table in memory without the rows of these key groups."""
    if len(groups) == 0:
        return part
    left = [(batch, ~np.isin(_groups(batch), groups)) for batch in part.batches]
    kept = [batch if mask.all() else filtered(batch, mask) for batch, mask in left if mask.any()]
    return replace(part, batches=kept)


def _groups(batch: pa.RecordBatch) -> npt.NDArray[np.uint16]:
    found: npt.NDArray[np.uint16] = batch.column(KEY_GROUP_COLUMN).to_numpy()
    return found


def in_group_order(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same rows in the order of their key groups, those of one group in the given order: slices, nothing
    is copied. Each batch is in that order already."""
    slices: list[tuple[int, pa.RecordBatch]] = []
    for batch in batches:
        groups = batch.column(KEY_GROUP_COLUMN).to_numpy()
        starts = [0, *(np.flatnonzero(groups[1:] != groups[:-1]) + 1).tolist()]
        for start, stop in zip(starts, [*starts[1:], len(groups)], strict=True):
            slices.append((int(groups[start]), batch.slice(start, stop - start)))
    return [piece for _, piece in sorted(slices, key=lambda one: one[0])]
