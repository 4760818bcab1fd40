"""The rows of a table of dimensions."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from tests.pairwise import every, pairwise

SIZES = {"a": range(3), "b": range(4), "c": range(5), "d": range(2)}


def pairs(rows: list[dict[str, Any]], *apart: tuple[str, str]) -> set[tuple[Any, ...]]:
    return {
        (one, row[one], other, row[other])
        for row in rows
        for one, other in combinations(SIZES, 2)
        if (one, other) not in apart
    }


def is_uneven(row: dict[str, Any]) -> bool:
    return bool(row["a"] != row["b"] and (row["c"] or row["d"]))


@pytest.mark.parametrize("apart", [(), (("b", "c"),)], ids=["all", "but for two that are apart"])
@pytest.mark.parametrize("holds", [lambda _: True, is_uneven], ids=["any row", "not any row"])
def test_each_pair_that_can_meet_meets_in_few_rows(holds: Any, apart: Any) -> None:
    possible, rows = every(SIZES, holds), pairwise(SIZES, holds, apart)
    assert pairs(rows, *apart) == pairs(possible, *apart)
    assert all(row in possible for row in rows)
    assert len(rows) < len(possible) / 2
    assert rows == pairwise(SIZES, holds, apart), "the same ones each time"
