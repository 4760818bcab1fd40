"""Sizes as people read them. Where they are configured, `unistream.core.memory.describe_bytes` has them."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def size_text(size: int) -> str:
    """A size in bytes with one digit behind the point.

    >>> size_text(531), size_text(25_600), size_text(3_200_000)
    ('531 B', '25.6 kB', '3.2 MB')
    """
    power, scaled = scaled_by_thousands(size, len(_UNITS))
    return f"{size} B" if power == 0 else f"{scaled:.1f} {_UNITS[power]}"


def scaled_by_thousands(value: int, units: int) -> tuple[int, float]:
    """The power of 1,000 by which it is divided, one of so many, and what is left.

    >>> scaled_by_thousands(25_600, 4), scaled_by_thousands(1_500_000, 4)
    ((1, 25.6), (2, 1.5))
    """
    power, scaled = 0, float(value)
    while round(abs(scaled), 1) >= 1_000 and power < units - 1:
        power, scaled = power + 1, scaled / 1_000
    return power, scaled
