"""The values of a job or a cluster by key, and the table of every key that there is."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import ModuleType
from typing import Final, TypeVar, cast

from unistream.base.config import (
    checkpoints,
    cluster,
    exchange,
    failures,
    high_availability,
    history,
    memory,
    object_stores,
    pipeline,
    rocksdb,
    scheduling,
    security,
    state,
    workers,
)
from unistream.base.config.parsing import ConfigOption
from unistream.base.errors import ConfigError
from unistream.base.secrets import is_secret_name

_T = TypeVar("_T")

TOPICS: Final = (
    pipeline,
    checkpoints,
    state,
    rocksdb,
    failures,
    scheduling,
    memory,
    exchange,
    workers,
    cluster,
    security,
    high_availability,
    object_stores,
    history,
)
"""The modules that declare options, in the order of the reference page."""


def options_of(topic: ModuleType) -> tuple[ConfigOption[object], ...]:
    """The options that one of TOPICS declares, in its order."""
    return tuple(value for value in vars(topic).values() if isinstance(value, ConfigOption))


OPTIONS: Final = {option.key: option for topic in TOPICS for option in options_of(topic)}
"""Every known key."""

OTHER_KEYS: Final = {other: option.key for option in OPTIONS.values() for other in option.other_keys}
"""Other names of options, and the keys that they stand for."""

FOREIGN: Final = "spark."
"""Keys with this prefix are Spark's, and are passed on unchecked."""

PARSED_MAX: Final = 4_096  # texts of options; each task of a worker's jobs parses the same ones


@functools.lru_cache(maxsize=PARSED_MAX)
def _parsed(parse: Callable[[str], object], text: str) -> object:
    """Cached: every task of a job reads the same few texts, and values are immutable."""
    return parse(text)


ConfigValue = str | int | float | bool | timedelta
"""What may be given for an option."""


def value_text(key: object, value: object) -> str:
    """The value as it would be on a command line. Raises ConfigError: it has no such text."""
    if not isinstance(key, str):
        raise ConfigError(f"configuration key {key!r} is not a string")
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, ConfigValue):
        raise ConfigError(f"{key}: a value is text, a number, a boolean or a timedelta, not {value!r}")
    if isinstance(value, timedelta):
        return f"{value // timedelta(microseconds=1)} micros"
    return str(value)


def is_secret(key: str) -> bool:
    """The value under this key is a secret, or may have one in it.

    >>> is_secret("s3.secret-key"), is_secret("spark.ssl.keyPassword"), is_secret("rest.port")
    (True, True, False)
    """
    option = OPTIONS.get(OTHER_KEYS.get(key, key))
    return is_secret_name(key) if option is None else option.secret


def unknown_key(key: str) -> str:
    """What is wrong with a key that is none, and the nearest one that there is."""
    near = difflib.get_close_matches(key, OPTIONS, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown configuration key {key!r}{hint}"


def _with_our_keys(values: dict[str, str]) -> dict[str, str]:
    for other in values.keys() & OTHER_KEYS.keys():
        key, value = OTHER_KEYS[other], values.pop(other)
        if values.setdefault(key, value) != value:
            raise ConfigError(
                f"{key} is {values[key]} and {other} is {value}; they are one option: set only one"
            )
    return values


class Configuration:
    """Text by key; every key is known, or Spark's. Numbers and booleans are converted to text.

    Raises:
        ConfigError: an unknown key, with the nearest known one, or an invalid value.

    >>> Configuration({"parallelism.default": "4"}).get(pipeline.PARALLELISM)
    4
    >>> Configuration({"parallelism.default": 4, "pipeline.operator-chaining.enabled": False}).to_dict()
    {'parallelism.default': '4', 'pipeline.operator-chaining.enabled': 'false'}
    """

    def __init__(self, values: Mapping[str, ConfigValue] | None = None) -> None:
        if values is not None and not isinstance(values, Mapping):
            raise ConfigError(f"a configuration is a mapping of keys to values, not {values!r}")
        self._values = _with_our_keys({key: value_text(key, value) for key, value in (values or {}).items()})
        for key in self._values:
            option = OPTIONS.get(key)
            if option is not None:
                self.find(option)
            elif not key.startswith(FOREIGN):
                raise ConfigError(unknown_key(key))

    def find(self, option: ConfigOption[_T]) -> _T | None:
        """The value, its default, or None when neither is set."""
        text = self._values.get(option.key, option.default)
        if text is None:
            return None
        try:
            return cast(_T, _parsed(option.parse, text))
        except ConfigError as error:
            raise ConfigError(f"{option.key}: {error}") from None

    def get(self, option: ConfigOption[_T]) -> _T:
        """The value or its default.

        Raises:
            ConfigError: it is not set and has no default.
        """
        value = self.find(option)
        if value is None:
            raise ConfigError(f"{option.key} is not set: {option.doc}")
        return value

    def merged(self, other: Mapping[str, ConfigValue]) -> Configuration:
        """A copy, overridden by `other`."""
        return Configuration({**self._values, **{OTHER_KEYS.get(key, key): other[key] for key in other}})

    def to_dict(self) -> dict[str, str]:
        """The values that were set, without defaults."""
        return dict(self._values)


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """``["a.b=1"]`` -> ``{"a.b": "1"}``, for ``-D`` on a command line."""
    values: dict[str, str] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"-D takes key=value, not {text!r}")
        values[key.strip()] = value.strip()
    return values
