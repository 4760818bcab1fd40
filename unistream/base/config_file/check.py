"""Options as they were written -> those whose keys are known and whose values fit, and all that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from unistream.base.config.configuration import (
    FOREIGN,
    OPTIONS,
    OTHER_KEYS,
    ConfigValue,
    is_secret,
    unknown_key,
    value_text,
)
from unistream.base.config.kinds import kind_of
from unistream.base.config_file.places import ConfigFault, OptionValue, PlaceKind, ValuePlace
from unistream.base.errors import ConfigError
from unistream.base.references import has_reference, replaced, unclear
from unistream.base.secrets import redacted

LookUp: TypeAlias = Callable[[str, str, str], str]
"""(what refers to it, its kind, what is named) -> what is there; as `unistream.base.secrets.looked_up`."""

ALL_FAULTS: Final = "unistream config check"


def written(values: Mapping[str, ConfigValue], kind: PlaceKind) -> list[OptionValue]:
    """The options of a program or a command line, unchecked. Raises ConfigError: a value has no text."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"a configuration is a mapping of keys to values, not {values!r}")
    texts = ((key, value_text(key, value)) for key, value in values.items())
    return [OptionValue(key=key, text=text, raw=text, place=ValuePlace(kind=kind)) for key, text in texts]


def checked(
    found: Iterable[OptionValue], look_up: LookUp
) -> tuple[dict[str, OptionValue], list[ConfigFault]]:
    """The options of one level by key, and the faults of the rest. `look_up`: raises ConfigError for what is
    not there."""
    options: dict[str, OptionValue] = {}
    faults: list[ConfigFault] = []
    for one in found:
        try:
            option = _checked(one, look_up)
            _check_once(options.get(option.key), one, option)
        except ConfigError as error:
            faults.append(ConfigFault(place=one.place, sentence=str(error), key=one.key))
        else:
            options[option.key] = option
    return options, faults


def check_given(values: Mapping[str, ConfigValue]) -> None:
    """Checks what can be checked of the options of a program before their references are resolved. Raises
    ConfigError: a key is unknown, or a value without references does not fit."""
    found = written(values, PlaceKind.PROGRAM)
    for one in found:
        if OTHER_KEYS.get(one.key, one.key) not in OPTIONS and not one.key.startswith(FOREIGN):
            raise ConfigError(unknown_key(one.key))
    _, faults = checked((one for one in found if not has_reference(one.raw)), _nowhere)
    if faults:
        raise ConfigError(str(faults[0]))


def _nowhere(what: str, kind: str, where: str) -> str:
    raise ConfigError(f"{what} refers to {kind}:{where}, where nothing is looked up yet")


def is_read_late(key: str) -> bool:
    """References in it travel as they are, and are resolved where the secret is needed."""
    return is_secret(key)


def first_fault(faults: Sequence[ConfigFault]) -> ConfigError:
    """The error for a command that cannot go on."""
    more = len(faults) - 1
    rest = f"; {more} more: '{ALL_FAULTS}' lists all" if more else ""
    return ConfigError(f"{faults[0]}{rest}")


def _checked(one: OptionValue, look_up: LookUp) -> OptionValue:
    """Raises ConfigError: it has a fault."""
    key = OTHER_KEYS.get(one.key, one.key)
    option = OPTIONS.get(key)
    if option is None and not key.startswith(FOREIGN):
        raise ConfigError(unknown_key(one.key))
    odd = None if option is None else unclear(one.raw)  # Spark has references of its own
    if odd is not None:
        shown = "a '${' in it" if is_secret(key) else odd
        raise ConfigError(
            f"{key}: {shown} is no reference, such as ${{env:NAME}} or ${{file:PATH}}; write $${{ for the "
            "text itself"
        )
    text = one.raw if is_read_late(key) else replaced(one.raw, partial(look_up, key))
    if option is not None:
        _check_fits(option.key, text, one.raw)
    return OptionValue(key=key, text=text, raw=one.raw, place=one.place)


def _check_fits(key: str, text: str, raw: str) -> None:
    """Raises ConfigError. What a reference names is not shown: it may be a secret in a wrong place."""
    option = OPTIONS[key]
    try:
        option.parse(text)
    except ConfigError as error:
        if has_reference(raw):
            raise ConfigError(f"{key}: what {raw} stands for does not fit: {kind_of(option)}") from None
        raise ConfigError(f"{key}: {error}") from None


def _check_once(before: OptionValue | None, one: OptionValue, option: OptionValue) -> None:
    """Raises ConfigError: the option has two values, by two of its names."""
    if before is None or before.text == option.text:
        return
    if before.place.kind in (PlaceKind.FILE, PlaceKind.VARIABLE):
        raise ConfigError(f"{one.key} is set here and in {before.place}, which is one option: set only one")
    first, second = redacted(before.text, before.key), redacted(option.text, option.key)
    raise ConfigError(f"{before.key} is {first} and {one.key} is {second}; they are one option: set only one")
