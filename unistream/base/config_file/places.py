"""Where a value of an option was written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PlaceKind(StrEnum):
    """Kinds of places, in the order in which they count: a later one takes the place of an earlier one."""

    DEFAULT = "default"
    FILE = "file"
    VARIABLE = "variable"
    PROGRAM = "program"
    COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuePlace:
    """One place. `name`: the path of a file, or a variable; `line`: of the file, from 1; 0: not known.

    >>> str(ValuePlace(kind=PlaceKind.FILE, name="config.yaml", line=3))
    'config.yaml line 3'
    """

    kind: PlaceKind
    name: str = ""
    line: int = 0

    def __str__(self) -> str:
        match self.kind:
            case PlaceKind.FILE if self.line:
                return f"{self.name} line {self.line}"
            case PlaceKind.FILE | PlaceKind.VARIABLE:
                return self.name
            case PlaceKind.COMMAND_LINE:
                return "-D"
        return self.kind.value


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionValue:
    """The value of one option.

    Attributes:
        key: As it was written, until it is checked; then the key of the option.
        text: The value; of a checked one what its references name is in their places, unless it is a secret.
        raw: The value as it was written.
        place: Where.
    """

    key: str
    text: str
    raw: str
    place: ValuePlace

    def __repr__(self) -> str:
        return f"OptionValue({self.key!r} of {self.place})"  # the text may be a secret


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFault:
    """What is wrong at a place, as one sentence. `key`: of which option; "": of none.

    >>> where = ValuePlace(kind=PlaceKind.FILE, name="config.yaml", line=3)
    >>> str(ConfigFault(place=where, sentence="rest.port has no value"))
    'config.yaml line 3: rest.port has no value'
    """

    place: ValuePlace
    sentence: str
    key: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.sentence}" if self.place.kind is not PlaceKind.PROGRAM else self.sentence
