"""Options, and the parsers of their text: units, ranges and words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from unistream.base.errors import UNDECODABLE, ConfigError

_T = TypeVar("_T")


def _named(*units: tuple[int, str]) -> dict[str, int]:
    """The sizes of units by each spelling. Names that end in "(s)" are written with or without it."""
    found: dict[str, int] = {}
    for size, spellings in units:
        for name in spellings.split():
            found |= {name.replace("(s)", ""): size, name.replace("(s)", "s"): size}
    return found


# The spellings of Flink's TimeUtils and MemorySize, in any case.
_DURATION_NS: Final = _named(
    (1, "ns nano(s) nanosecond(s)"),
    (1_000, "µs μs micro(s) microsecond(s)"),  # the micro sign, and mu, to which it is lowered at times
    (1_000_000, "ms milli(s) millisecond(s)"),
    (1_000_000_000, "s sec(s) second(s)"),
    (60_000_000_000, "min m minute(s)"),
    (3_600_000_000_000, "h hour(s)"),
    (86_400_000_000_000, "d day(s)"),
)
_BYTES: Final = _named(
    (1, "b bytes"),
    (2**10, "k kb kibibytes"),
    (2**20, "m mb mebibytes"),
    (2**30, "g gb gibibytes"),
    (2**40, "t tb tebibytes"),
)
_NS_PER_MS: Final = 1_000_000
DURATION_MS_MAX: Final = 10**10 * 86_400_000  # 10^10 days still fit into the 63 bits of timers and clocks
_NUMBER_UNIT: Final = re.compile(r"^\s*([0-9]{1,40})\s*([a-zA-Zµμ]*)\s*$")
_REAL_NUMBER: Final = re.compile(r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$")
_WHOLE_NUMBER: Final = re.compile(r"^\s*[+-]?[0-9]+\s*$")
_LONG_MAX: Final = 2**63 - 1  # of the number, as in Flink


def parse_duration_ms(text: str) -> int:
    """``"2 s"`` -> 2000; a bare number is milliseconds, as in Flink. Longer ones than DURATION_MS_MAX, which
    are written for "never", are that.

    Raises:
        ConfigError: it is no duration, or no whole number of milliseconds.

    >>> parse_duration_ms("2 s"), parse_duration_ms("100"), parse_duration_ms("1 Hour")
    (2000, 100, 3600000)
    """
    found = _with_unit(text, _DURATION_NS, "ms", "a duration such as '2 s' or '500 ms'")
    if found % _NS_PER_MS:
        raise ConfigError(f"{text[:80]!r} is not a duration in whole milliseconds")
    return min(found // _NS_PER_MS, DURATION_MS_MAX)


def duration_text(ms: int) -> str:
    """A duration as in a configuration, in the largest unit of which it is a whole number.

    >>> duration_text(86_400_000), duration_text(5_400_000), duration_text(1_500), duration_text(0)
    ('1 d', '90 min', '1500 ms', '0 ms')
    """
    for unit, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if ms and ms % unit == 0:
            return f"{ms // unit} {name}"
    return f"{ms} ms"


DurationLike: TypeAlias = str | int | timedelta
"""A duration as an argument: text as in a configuration, milliseconds, or a `timedelta`."""


def duration_ms(given: DurationLike) -> int:
    """Milliseconds.

    Raises:
        ConfigError: as `parse_duration_ms`; it is negative, or of another type.

    >>> duration_ms("2 s"), duration_ms(100), duration_ms(timedelta(hours=1))
    (2000, 100, 3600000)
    """
    if isinstance(given, timedelta):
        return parse_duration_ms(f"{given // timedelta(microseconds=1)} micros")
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise ConfigError(f"{given!r:.200} is not a duration such as '2 s', milliseconds, or a timedelta")
    return parse_duration_ms(str(given))


def parse_bytes(text: str) -> int:
    """``"64 mb"`` -> 67108864; a bare number is bytes."""
    found = _with_unit(text, _BYTES, "b", "a size such as '64 mb'")
    if found > _LONG_MAX:
        raise ConfigError(f"{text[:80]!r} is not a size below 2^63 bytes")
    return found


def _with_unit(text: str, units: Mapping[str, int], default: str, wanted: str) -> int:
    found = _NUMBER_UNIT.match(text)
    unit = units.get(found[2].lower() or default) if found else None
    if found is None or unit is None or int(found[1]) > _LONG_MAX:
        raise ConfigError(f"{text[:80]!r} is not {wanted}")
    return int(found[1]) * unit


def parse_asset_keys(text: str) -> tuple[tuple[str, ...], ...]:
    """JSON: a list of keys, each a list of its parts.

    >>> parse_asset_keys('[["lake", "orders"]]')
    (('lake', 'orders'),)
    """
    try:
        return msgspec.json.decode(text, type=tuple[tuple[str, ...], ...])
    except UNDECODABLE as error:
        raise ConfigError(f'{text[:200]!r} is no JSON such as [["lake", "orders"]]: {error}') from error


def parse_places(text: str) -> tuple[str, ...]:
    """Absolute paths and URLs with commas between them.

    >>> parse_places("/data/savepoints, s3://lake/savepoints")
    ('/data/savepoints', 's3://lake/savepoints')
    """
    places = tuple(part.strip() for part in text.split(",") if part.strip())
    for place in places:
        if not (place.startswith("/") or "://" in place) or ".." in place.split("/"):
            raise ConfigError(f"{place[:80]!r} is no absolute path or URL without '..'")
    return places


PORTS_MAX: Final = 1_000  # of one server: each is tried until one is free


def parse_ports(text: str) -> tuple[int, ...]:
    """Ports and ranges of them with commas between them, as in Flink; 0: any free one.

    >>> parse_ports("50100-50102, 50200")
    (50100, 50101, 50102, 50200)
    """
    found: list[int] = []
    for part in text.split(","):
        first, _, last = (end.strip() for end in part.partition("-"))
        ends = [
            int(end) for end in (first, last or first) if end.isascii() and end.isdigit() and len(end) < 6
        ]
        if len(ends) < 2 or not 0 <= ends[0] <= ends[1] <= 65_535:
            raise ConfigError(f"{text[:80]!r} is no port, or ports such as '50100-50200, 50300'")
        found += range(ends[0], ends[1] + 1)
    if len(found) > PORTS_MAX:
        raise ConfigError(f"{text[:80]!r} are {len(found)} ports, and a server tries {PORTS_MAX} at most")
    return tuple(found)


def parse_bool(text: str) -> bool:
    """``true`` or ``false``, in any case."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ConfigError(f"{text!r} is not true or false")


def parse_int(text: str) -> int:
    """A whole number in decimal digits that fits into 64 bits."""
    if _WHOLE_NUMBER.match(text) is None or len(text) > 24 or not -(2**63) <= int(text) < 2**63:
        raise ConfigError(f"{text[:80]!r} is not a whole number")
    return int(text)


@dataclass(frozen=True, slots=True)
class OneOf:
    """Parses one of these words in any case, as Flink does; returns it as it is written here."""

    allowed: tuple[str, ...]

    def __call__(self, text: str) -> str:
        wanted = text.strip().casefold()
        for word in self.allowed:
            if word.casefold() == wanted:
                return word
        raise ConfigError(f"{text!r} is not one of {', '.join(self.allowed)}")


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """Parses an integer from `least` to `most`; `unset`: one more value, which means "derived"."""

    least: int
    most: int
    unset: int | None = None

    def __call__(self, text: str) -> int:
        value = parse_int(text)
        if not self.least <= value <= self.most and value != self.unset:
            raise ConfigError(f"{value} is not between {self.least} and {self.most}")
        return value


@dataclass(frozen=True, slots=True)
class RealNumber:
    """Parses a finite number from `least` to `most`; `least` itself only if `inclusive`."""

    least: float
    most: float
    inclusive: bool = True

    @property
    def allowed(self) -> str:
        if self.most == float("inf"):
            return f"at least {self.least}" if self.inclusive else f"above {self.least}"
        return f"between {self.least} and {self.most}"

    def __call__(self, text: str) -> float:
        value = float(text) if len(text) <= 64 and _REAL_NUMBER.match(text) else float("nan")
        fits = self.least <= value <= self.most and (self.inclusive or value != self.least)
        if not fits or value == float("inf"):
            raise ConfigError(f"{text[:80]!r} is not a number {self.allowed}")
        return value


@dataclass(frozen=True, slots=True)
class Bytes:
    """Parses a size as `parse_bytes` does, from `least` to `most` bytes."""

    least: int
    most: int

    def __call__(self, text: str) -> int:
        value = parse_bytes(text)
        if not self.least <= value <= self.most:
            raise ConfigError(f"{text[:80]!r} is not a size between {self.least} and {self.most} bytes")
        return value


@dataclass(frozen=True, slots=True)
class Duration:
    """Parses a duration as `parse_duration_ms` does, of at least `least_ms`."""

    least_ms: int

    def __call__(self, text: str) -> int:
        value = parse_duration_ms(text)
        if value < self.least_ms:
            raise ConfigError(f"{text[:80]!r} is not a duration of at least {self.least_ms} ms")
        return value


def one_of(*allowed: str) -> OneOf:
    return OneOf(allowed)


@dataclass(frozen=True, slots=True)
class ConfigOption(Generic[_T]):
    """One key. `default` is text too (None: unset), so that it is parsed and printed like a value.

    `other_keys`: names of the same option in other versions of Flink, which are accepted for `key`.
    `secret`: the value is a secret, or may have one in it. What uses it calls
    `unistream.base.secrets.resolved`: a reference in it travels as it is, and is resolved where it is needed.
    """

    key: str
    parse: Callable[[str], _T]
    default: str | None
    doc: str
    other_keys: tuple[str, ...] = ()
    secret: bool = False
