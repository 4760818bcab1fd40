"""What is in a table of letters, in groups and one by one: for the command line and for the web UI."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from unistream.dead_letters.replay import Chosen
from unistream.dead_letters.table import Letters
from unistream.model.letter_pages import LetterGroup, LetterLimits, LetterShown, LettersPage


def groups_of(letters: Letters, replayed: Set[str]) -> list[LetterGroup]:
    """The letters grouped by operator and error, in the order of the operators' names."""
    done = pc.is_in(letters.rows["letter"], pa.array(sorted(replayed), pa.string()))
    rows: pa.Table = letters.rows.append_column("done", done.cast(pa.int64()))
    rows = rows.append_column("ms", rows["time"].cast(pa.int64()))
    keys = ["operator", "operator_uid", "error_type"]
    counted = [("letter", "count"), ("done", "sum"), ("attempt", "max"), ("ms", "min"), ("ms", "max")]
    grouped = rows.group_by(keys).aggregate(counted).sort_by([(key, "ascending") for key in keys])
    return [
        LetterGroup(
            **{key: one[key] for key in keys},
            letters=one["letter_count"],
            replayed=one["done_sum"] or 0,
            attempts=one["attempt_max"],
            first_ms=one["ms_min"],
            last_ms=one["ms_max"],
        )
        for one in grouped.to_pylist()
    ]


def page_of(letters: Letters, replayed: Set[str], chosen: Chosen, limits: LetterLimits) -> LettersPage:
    """The groups, and the newest of the chosen letters, as many as the limits allow."""
    rows = letters.rows.filter(chosen.mask(letters.rows)).sort_by([("time", "descending")])
    shown: list[LetterShown] = []
    left = limits.answer_bytes
    for row in rows.slice(0, limits.letters).drop_columns(["row_ipc"]).to_pylist():
        one = _shown(row, replayed, limits.text_characters)
        left -= len(one.row.encode()) + len(one.error.encode())
        if left < 0:
            break
        shown.append(one)
    return LettersPage(
        are_records=letters.records is not None,
        groups=tuple(groups_of(letters, replayed)),
        letters=tuple(shown),
        more=rows.num_rows - len(shown),
        limits=limits,
    )


def _shown(row: dict[str, object], replayed: Set[str], most: int) -> LetterShown:
    text, error = str(row["row"] or ""), str(row["error"] or "")
    return LetterShown(
        letter=str(row["letter"]),
        row=text[:most],
        is_cut=len(text) > most,
        error_type=str(row["error_type"]),
        error=error[:most],
        error_at=None if row["error_at"] is None else str(row["error_at"]),
        operator=str(row["operator"]),
        operator_uid=str(row["operator_uid"]),
        attempt=int(str(row["attempt"] or 1)),
        replay_of=None if row["replay_of"] is None else str(row["replay_of"]),
        replayed=row["letter"] in replayed,
        time_ms=milliseconds(row["time"]),
        event_time_ms=milliseconds(row["event_time"]),
    )


def milliseconds(at: object) -> int | None:
    """A time in a letter as milliseconds since 1970; None: it has none."""
    return round(at.timestamp() * 1_000) if isinstance(at, datetime) else None
