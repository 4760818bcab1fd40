"""Whether two pictures are of the same page. What two runs differ in (times, ids, a line of a plot) does
not count; what was changed in the product (a column, a button, a colour) does.

    python -m tests.browser.likeness FOUND EXPECTED     of two folders; those that differ, and exit code 1
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels: TypeAlias = NDArray[np.float64]

BLOCK: Final = 25  # pixels: a letter more or less does not show, a line does
SHADES: Final = 16  # of 256, by which the mean of a block may differ
PART_MAX: Final = 0.08  # of the blocks; two runs of one product differ in up to 0.05


def difference(one: Path, other: Path) -> float:
    """The part of the blocks that differ; those that only one of them has do."""
    means = [of_blocks(np.asarray(Image.open(path).convert("RGB"), np.float64)) for path in (one, other)]
    (rows, columns), largest = (reach([mean.shape for mean in means]) for reach in (least, most))
    differing = np.abs(means[0][:rows, :columns] - means[1][:rows, :columns]).max(axis=2) > SHADES
    return float((differing.sum() + largest[0] * largest[1] - rows * columns) / (largest[0] * largest[1]))


def least(shapes: Sequence[tuple[int, ...]]) -> tuple[int, int]:
    return min(shape[0] for shape in shapes), min(shape[1] for shape in shapes)


def most(shapes: Sequence[tuple[int, ...]]) -> tuple[int, int]:
    return max(shape[0] for shape in shapes), max(shape[1] for shape in shapes)


def of_blocks(picture: Pixels) -> Pixels:
    """The mean colour of each block; what is left at the right and at the bottom belongs to none."""
    height, width = (length // BLOCK * BLOCK for length in picture.shape[:2])
    blocks = picture[:height, :width].reshape(height // BLOCK, BLOCK, width // BLOCK, BLOCK, 3)
    return np.asarray(blocks.mean(axis=(1, 3)))


def unlike(found: Path, expected: Path) -> list[str]:
    """A line for each picture that is not of the same page, or that only one of the folders has."""
    names = sorted({path.name for folder in (found, expected) for path in folder.glob("*.png")})
    lines = []
    for name in names:
        if not (found / name).exists() or not (expected / name).exists():
            lines.append(f"{name}: only in {found if (found / name).exists() else expected}")
        elif (part := difference(found / name, expected / name)) > PART_MAX:
            lines.append(f"{name}: {part:.0%} of it differ")
    return lines


def main(words: list[str]) -> int:
    found, expected = map(Path, words)
    lines = unlike(found, expected)
    print(
        "\n".join(
            [*lines, f"look at {found}; `make screenshots` takes them again"] if lines else ["all alike"]
        )
    )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
