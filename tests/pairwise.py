"""Rows of a table of dimensions in which each pair of values meets.

Nearly every fault lies where two features meet. So a suite of dimensions runs, at each commit, as few rows as
have each pair of values of any two dimensions, and all rows at night.

    every({"mode": ["append", "upsert"], "table": ["new", "old"]})          4 rows
    pairwise({"mode": […], "table": […], "killed": […]}, is_possible)       as few as a greedy search finds

The same dimensions give the same rows, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, Final

Dimensions = Mapping[str, Sequence[Any]]
"""Name -> its values, which can be compared and hashed."""
Row = dict[str, Any]
Pair = tuple[str, Any, str, Any]
ANY: Final[Callable[[Row], bool]] = lambda _: True  # noqa: E731 - a default that has a name


def every(dimensions: Dimensions, is_possible: Callable[[Row], bool] = ANY) -> list[Row]:
    """All rows that are possible."""
    rows = (dict(zip(dimensions, values, strict=True)) for values in product(*dimensions.values()))
    return [row for row in rows if is_possible(row)]


def pairwise(
    dimensions: Dimensions,
    is_possible: Callable[[Row], bool] = ANY,
    apart: Collection[tuple[str, str]] = (),
) -> list[Row]:
    """Rows in which each pair of values meets that meets in a possible row.

    Args:
        apart: Two dimensions that do not touch each other: their pairs are not asked for.

    >>> rows = pairwise({"a": [1, 2, 3], "b": [1, 2, 3], "c": [1, 2]})
    >>> len(rows), rows[0]
    (9, {'a': 1, 'b': 1, 'c': 1})
    """
    together = [
        (one, other)
        for one, other in combinations(dimensions, 2)
        if (one, other) not in apart and (other, one) not in apart
    ]
    missing: dict[Pair, None] = {
        (one, left, other, right): None
        for one, other in together
        for left, right in product(dimensions[one], dimensions[other])
    }
    chosen: list[Row] = []
    while missing:
        pair = one, left, other, right = next(iter(missing))
        row = next(filter(is_possible, _filled({one: left, other: right}, dimensions, missing)), None)
        if row is None:  # no row has both
            del missing[pair]
            continue
        row = {name: row[name] for name in dimensions}
        for done in _pairs(row, together):
            missing.pop(done, None)
        chosen.append(row)
    return chosen


def _filled(begun: Row, dimensions: Dimensions, missing: Mapping[Pair, None]) -> Iterator[Row]:
    """All rows with those values, about in the order of how many missing pairs they have."""
    name = next((name for name in dimensions if name not in begun), None)
    if name is None:
        yield begun
        return
    order = list(dimensions)
    before = [(other, value) for other, value in begun.items() if order.index(other) < order.index(name)]
    behind = [(other, value) for other, value in begun.items() if order.index(other) > order.index(name)]

    def gain(value: Any) -> int:
        pairs = [(*one, name, value) for one in before] + [(name, value, *one) for one in behind]
        return sum(pair in missing for pair in pairs)

    for value in sorted(dimensions[name], key=gain, reverse=True):
        yield from _filled({**begun, name: value}, dimensions, missing)


def _pairs(row: Row, together: Iterable[tuple[str, str]]) -> list[Pair]:
    return [(one, row[one], other, row[other]) for one, other in together]
