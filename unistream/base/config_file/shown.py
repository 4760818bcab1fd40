"""The options of all levels as they are shown: the value that counts, where it is from, and no secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from unistream.base.config.configuration import OPTIONS
from unistream.base.config_file.places import OptionValue, PlaceKind, ValuePlace
from unistream.base.secrets import redacted

Levels: TypeAlias = Sequence[Mapping[str, OptionValue]]
"""Options by key, of each level; a later one counts first."""

BY_DEFAULT: Final = ValuePlace(kind=PlaceKind.DEFAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedOption:
    """One option.

    Attributes:
        value: None: it is unset, and has no default.
        raw: As it was written, with references; "": it is the default.
        place: Of the value that counts.
        hidden: Places of values that do not count, the last one first.
    """

    key: str
    value: str | None
    raw: str
    place: ValuePlace
    hidden: tuple[ValuePlace, ...] = ()


def placed_options(levels: Levels, *, every: bool = False) -> list[PlacedOption]:
    """The options that are set, or `every` one, in the order of the reference; then Spark's."""
    given = {key for level in levels for key in level}
    known = [key for key in OPTIONS if every or key in given]
    return [placed_option(key, levels) for key in (*known, *sorted(given - OPTIONS.keys()))]


def placed_option(key: str, levels: Levels) -> PlacedOption:
    """A single option, also if it is not set."""
    found = [level[key] for level in reversed(levels) if key in level]
    if not found:
        option = OPTIONS.get(key)
        value = None if option is None else option.default
        return PlacedOption(key=key, value=value, raw="", place=BY_DEFAULT)
    first, *others = found
    return PlacedOption(
        key=key,
        value=redacted(first.text, key),
        raw=redacted(first.raw, key),
        place=first.place,
        hidden=tuple(other.place for other in others),
    )
