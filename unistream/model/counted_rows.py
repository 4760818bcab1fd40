"""Rows that users must hear of, in the counters of an attempt: late, dead letters, left out, out of order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from unistream.model.counter_names import RECORDS_OUT_OF_ORDER, by_operator
from unistream.model.metric_names import DEAD_LETTERS, LATE_RECORDS_DROPPED, SKIPPED

_OUT_OF_ORDER: Final = f".{RECORDS_OUT_OF_ORDER}."


def late_rows_of(counters: Mapping[str, int]) -> dict[str, int]:
    """Dropped rows by operator name, from counters by ``<operator name>.<counter>``.

    >>> late_rows_of({"per shop.numLateRecordsDropped": 3, "per shop.rows": 8, "b.numLateRecordsDropped": 0})
    {'per shop': 3}
    """
    return _some(by_operator(counters, LATE_RECORDS_DROPPED))


def dead_letters_of(counters: Mapping[str, int]) -> dict[str, int]:
    """Rows, or records, that were sent to the side output "dead-letters", by operator name.

    >>> dead_letters_of({"parse.dead_letters": 3, "parse.rows": 8})
    {'parse': 3}
    """
    return _some(by_operator(counters, DEAD_LETTERS))


def skipped_rows_of(counters: Mapping[str, int]) -> dict[str, int]:
    """Rows, or records, that were left out since they failed, by operator name.

    >>> skipped_rows_of({"parse.numRecordsSkipped": 3, "parse.dead_letters": 8})
    {'parse': 3}
    """
    return _some(by_operator(counters, SKIPPED))


def _some(rows: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in rows.items() if count}


def out_of_order_rows_of(counters: Mapping[str, int]) -> dict[str, int]:
    """Rows that a source with ``in_order=True`` read out of order, by its name and the split.

    >>> out_of_order_rows_of({"file.numRecordsOutOfOrder./in/b.json:0-90": 3, "file.rows": 8})
    {'file: /in/b.json:0-90': 3}
    """
    found = {}
    for name, rows in counters.items():
        operator, separator, split = name.partition(_OUT_OF_ORDER)
        if rows and separator:
            found[f"{operator}: {split}"] = rows
    return found
