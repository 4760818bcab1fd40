"""In which order the gate runs its tests: those that wait stand between those that compute.

A test of servers and processes waits for most of its time, and one near the code never does. Run one kind
after the other, and a processor is idle in every fifth second of the first; side by side they fill it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeVar

T = TypeVar("T")


def module_of(test: str) -> str:
    """What stays together; those of tests/tidy read the same files.

    >>> module_of("tests/tidy/test_tidy_words.py::test_a"), module_of("tests/unit/test_b.py::test_c[1]")
    ('tests/tidy', 'tests/unit/test_b.py')
    """
    return "tests/tidy" if test.startswith("tests/tidy/") else test.partition("::")[0]


def spread(tests: Sequence[T], module: Callable[[T], str], waits: Callable[[T], bool]) -> list[T]:
    """The same tests, modules whole and in order: after each module that waits its share of the others.

    >>> spread(["a", "b", "K", "c", "L", "d"], module=str, waits=str.isupper)
    ['K', 'a', 'b', 'L', 'c', 'd']
    """
    modules = [list(group) for _, group in groupby(tests, module)]
    waiting = [group for group in modules if waits(group[0])]
    others = [group for group in modules if not waits(group[0])]
    if not waiting:
        return list(tests)
    mixed: list[list[T]] = []
    for number, group in enumerate(waiting):
        begin, end = (len(others) * at // len(waiting) for at in (number, number + 1))
        mixed += [group, *others[begin:end]]
    return [test for group in mixed for test in group]
