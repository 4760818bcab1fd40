"""Dead letters of a hybrid source, which one of its two sources reads again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError
from unistream.connector.hybrid.reader import Switch, fence_times, on_own_side
from unistream.port.dead_letters import LetterRows, ReadsLetters
from unistream.port.source import Source

HISTORY_NAME: Final = "history"


def own_letters(letters: pa.Table, sources: Mapping[str, Source]) -> pa.Array[Any]:
    """See `unistream.port.dead_letters.ReadsLetters`. `sources`: "history" and "live"."""
    found = pa.repeat(pa.scalar(False), letters.num_rows)
    for source in sources.values():
        if isinstance(source, ReadsLetters):
            found = pc.or_(found, source.own_letters(letters))
    return found


def read_letters(
    letters: pa.Table, sources: Mapping[str, Source], schema: pa.Schema, switch: Switch
) -> LetterRows:
    """See `unistream.port.dead_letters.ReadsLetters`. Rows on the other side of the fence are left out: the
    other source has them.

    Raises:
        ConfigError: also: it is not known which of the two has sent a letter, or where the fence was.
    """
    if switch.is_derived:
        raise ConfigError(
            "a HybridSource that derives its fence from the history cannot read its dead letters again: it "
            "is not known any more where the fence was. Correct them, and publish or write them again"
        )
    owners = {name: one for name, one in sources.items() if isinstance(one, ReadsLetters)}
    masks = {name: one.own_letters(letters).to_pylist() for name, one in owners.items()}
    if any(all(flags) for flags in zip(*masks.values(), strict=True)) and len(masks) > 1:
        raise ConfigError(
            "history and live of the HybridSource read the same, so it is not known which of them has sent "
            "these letters: correct them, and publish or write them again"
        )
    rows: list[pa.RecordBatch | None] = [None] * letters.num_rows
    times: list[int | None] = [None] * letters.num_rows
    reasons: dict[int, str] = {}
    for name, mask in masks.items():
        places = [at for at, is_own in enumerate(mask) if is_own]
        if not places:
            continue
        found = owners[name].read_letters(letters.take(places))
        reasons |= {places[at]: reason for at, reason in found.reasons.items()}
        for at, records, time in zip(places, found.rows, found.times, strict=True):
            times[at] = time
            if records is not None:
                rows[at] = _kept(records.select(schema.names).cast(schema), switch, name)
    return LetterRows(rows, times, reasons)


def _kept(records: pa.RecordBatch, switch: Switch, name: str) -> pa.RecordBatch:
    if switch.column is None or switch.fence is None or not records.num_rows:
        return records
    times = fence_times(records, switch.column, name)
    return records.filter(on_own_side(times, switch.fence, of_history=name == HISTORY_NAME))
