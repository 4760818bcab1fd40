"""Numbers, sizes and times as people read them; the web UI writes them alike (`ui/src/format`)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from unistream.base.sizes import scaled_by_thousands, size_text

UNKNOWN: Final = "–"
"""What stands where a number is not known: never a zero."""

SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

_COMPACT: Final = ("", "K", "M", "B", "T")
_MOMENT_MS_MAX: Final = (
    253_402_300_799_000  # the end of year 9999; a watermark at the end of a stream is later
)


def count(value: int | None) -> str:
    """All digits, in groups.

    >>> count(1_234_567), count(0), count(None)
    ('1,234,567', '0', '–')
    """
    return UNKNOWN if value is None else f"{value:,}"


def several(number: int, what: str) -> str:
    """A number with its noun.

    >>> several(1, "restart"), several(1_200, "checkpoint")
    ('1 restart', '1,200 checkpoints')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def compact(value: int | None) -> str:
    """Where there is little room.

    >>> compact(999), compact(20_480), compact(2_080_384), compact(None)
    ('999', '20.5K', '2.1M', '–')
    """
    if value is None:
        return UNKNOWN
    power, scaled = scaled_by_thousands(value, len(_COMPACT))
    return f"{value}" if power == 0 else f"{scaled:.1f}".removesuffix(".0") + _COMPACT[power]


def rate(per_s: int | None) -> str:
    """Rows in a second.

    >>> rate(19_980), rate(0), rate(None)
    ('19,980/s', '0/s', '–')
    """
    return UNKNOWN if per_s is None else f"{per_s:,}/s"


def size(value: int | None) -> str:
    """A size with one digit behind the point.

    >>> size(531), size(25_600), size(3_200_000), size(None)
    ('531 B', '25.6 kB', '3.2 MB', '–')
    """
    return UNKNOWN if value is None else size_text(value)


def percent(part: float | None) -> str:
    """A part of a whole as percent.

    >>> percent(0.42), percent(None)
    ('42 %', '–')
    """
    return UNKNOWN if part is None else f"{part * 100:.0f} %"


def duration(ms: float | None) -> str:
    """Two parts at most, the largest first.

    >>> duration(26), duration(1_500), duration(65_000), duration(7_260_000), duration(86_400_000)
    ('26 ms', '1.5 s', '1 min 5 s', '2 h 1 min', '1 d')
    """
    if ms is None:
        return UNKNOWN
    if ms < 0:
        return f"-{duration(-ms)}"
    if ms < SECOND:
        return f"{round(ms)} ms"
    if ms < MINUTE:
        return f"{ms // 100 / 10:g} s"
    if ms < HOUR:
        return _two(ms, "min", MINUTE, "s", SECOND)
    if ms < DAY:
        return _two(ms, "h", HOUR, "min", MINUTE)
    return _two(ms, "d", DAY, "h", HOUR)


def _two(ms: float, unit: str, of: int, below: str, part: int) -> str:
    rest = int(ms % of) // part
    return f"{int(ms) // of} {unit}" + (f" {rest} {below}" if rest else "")


def age(at_ms: int | None, now_ms: int) -> str:
    """How long ago, in one unit; a clock that is behind makes no negative time.

    >>> age(0, 500), age(0, 59_999), age(0, 7_260_000), age(0, 200_000_000), age(None, 9)
    ('just now', '59 s ago', '2 h ago', '2 d ago', '–')
    """
    if at_ms is None:
        return UNKNOWN
    passed = max(0, now_ms - at_ms)
    for unit, of in (("d", DAY), ("h", HOUR), ("min", MINUTE), ("s", SECOND)):
        if passed >= of:
            return f"{passed // of} {unit} ago"
    return "just now"


def moment(at_ms: int | None) -> str:
    """Local time to the second, with its zone: UTC, or the offset, since names of zones are ambiguous.

    >>> moment(None), moment(10**18)
    ('–', 'the end')
    """
    if at_ms is None:
        return UNKNOWN
    if at_ms > _MOMENT_MS_MAX:
        return "the end"
    local = datetime.fromtimestamp(at_ms / 1_000, UTC).astimezone()
    zone = f"{local:%z}"  # Python 3.11 has no %:z
    return f"{local:%Y-%m-%d %H:%M:%S} " + ("UTC" if zone == "+0000" else f"{zone[:3]}:{zone[3:]}")


def since(at_ms: int | None, now_ms: int) -> tuple[str, str]:
    """A cell of a table: the moment, and where there is no room for it, its age."""
    return moment(at_ms), age(at_ms, now_ms)
