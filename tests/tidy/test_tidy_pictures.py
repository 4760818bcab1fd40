"""How pictures of the documentation are compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.browser.likeness import PART_MAX, difference, unlike


def page(rows: int = 6, columns: int = 4, texts: int = 1, height: int = 600) -> np.ndarray:
    """A table with a line of text in each cell."""
    picture = np.full((height, 800, 3), 255, np.uint8)
    for row in range(rows):
        for column in range(columns):
            y, x = 100 * row, 200 * column
            picture[y : y + 100, x : x + 2] = 100
            picture[y + 20 : y + 23, x + 20 : x + 40 + 10 * (row * texts % 7)] = 0
            picture[y + 50 : y + 90, x + 10 : x + 190] = 120
    return picture


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        pytest.param(page(), True, id="the same page"),
        pytest.param(page(texts=3), True, id="other words in its cells"),
        pytest.param(page(height=630), True, id="somewhat longer"),
        pytest.param(page(columns=3), False, id="a column less"),
        pytest.param(page(rows=4), False, id="two rows less"),
        pytest.param(255 - page(), False, id="in the dark"),
        pytest.param(page(height=900), False, id="half as long again"),
    ],
)
def test_a_page_is_known_again(other: np.ndarray, alike: bool, tmp_path: Path) -> None:
    for name, picture in (("one", page()), ("other", other)):
        Image.fromarray(picture).save(tmp_path / f"{name}.png")
    assert (difference(tmp_path / "one.png", tmp_path / "other.png") <= PART_MAX) is alike


def test_a_picture_that_only_one_side_has_is_named(tmp_path: Path) -> None:
    for folder, names in (("found", "ab"), ("expected", "ac")):
        (tmp_path / folder).mkdir()
        for name in names:
            Image.fromarray(page()).save(tmp_path / folder / f"{name}.png")
    lines = unlike(tmp_path / "found", tmp_path / "expected")
    assert lines == [f"b.png: only in {tmp_path / 'found'}", f"c.png: only in {tmp_path / 'expected'}"]
