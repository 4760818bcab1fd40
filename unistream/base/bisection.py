"""Which items of a batch make it fail, found by trying halves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def bisected(
    items: int, attempt: Callable[[int, int], T], is_of_an_item: Callable[[Exception], bool]
) -> tuple[list[tuple[int, T]], dict[int, BaseException]]:
    """Finds the items that fail: (first item, result) of each range that succeeded, in order, and item -> why
    it failed.

    Of n items, b of which fail, about 2 b log2(n / b) ranges are tried, at most 2 n.

    Args:
        items: Number of items.
        attempt: (start, stop) -> result of items [start, stop); raises if one of them fails.
        is_of_an_item: False: the error has another reason, and is raised.

    >>> def attempt(start, stop):
    ...     return [1 // n for n in [4, 2, 0, 1][start:stop]]
    >>> bisected(4, attempt, lambda error: isinstance(error, ZeroDivisionError))
    ([(0, [0, 0]), (3, [1])], {2: ZeroDivisionError('integer division or modulo by zero')})
    """
    good: list[tuple[int, T]] = []
    bad: dict[int, BaseException] = {}
    waiting = [(0, items)] if items else []
    while waiting:
        start, stop = waiting.pop()
        try:
            good.append((start, attempt(start, stop)))
        except Exception as error:
            if not is_of_an_item(error):
                raise
            if stop - start == 1:
                bad[start] = error
                continue
            middle = (start + stop) // 2
            waiting += [(middle, stop), (start, middle)]
    return good, bad
