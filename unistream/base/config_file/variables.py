"""Variables of the environment that set options: ``UNISTREAM_CONF_`` and the key.

A dot of the key is ``__``, a dash ``_``, and its letters are capitals, so that names are those that shells
and containers allow, and each can be read back: `rest.port` is ``UNISTREAM_CONF_REST__PORT``,
`high-availability.cluster-id` is ``UNISTREAM_CONF_HIGH_AVAILABILITY__CLUSTER_ID``. Keys of Spark's own are
not in our table, and have capitals: their letters stay, as in ``UNISTREAM_CONF_spark__executor__cores``.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from unistream.base.config.configuration import FOREIGN, OPTIONS, OTHER_KEYS
from unistream.base.config_file.places import ConfigFault, OptionValue, PlaceKind, ValuePlace

PREFIX: Final = "UNISTREAM_CONF_"
CONF_DIR_VARIABLE: Final = "UNISTREAM_CONF_DIR"
"""The folder of config.yaml, as FLINK_CONF_DIR: no option has this name."""


def variable_of(key: str) -> str:
    """The variable of an option.

    >>> variable_of("rest.port"), variable_of("spark.executor.memoryOverhead")
    ('UNISTREAM_CONF_REST__PORT', 'UNISTREAM_CONF_spark__executor__memoryOverhead')
    """
    name = key.replace("-", "_").replace(".", "__")
    is_ours = key in OPTIONS or key in OTHER_KEYS or not key.startswith(FOREIGN)
    return PREFIX + (name.upper() if is_ours else name)


_KEYS: Final = {variable_of(key): key for key in (*OPTIONS, *OTHER_KEYS)}
_FOREIGN: Final = PREFIX + FOREIGN.replace(".", "__")


def read_variables(environ: Mapping[str, str]) -> tuple[list[OptionValue], list[ConfigFault]]:
    """The options that variables set, by the order of their names; an empty variable sets none."""
    found: list[OptionValue] = []
    faults: list[ConfigFault] = []
    for name, text in sorted(environ.items()):
        if not name.startswith(PREFIX) or name == CONF_DIR_VARIABLE or not text:
            continue
        place = ValuePlace(kind=PlaceKind.VARIABLE, name=name)
        key = _KEYS.get(name) or _foreign_key(name)
        if key is None:
            faults.append(ConfigFault(place=place, sentence=_unknown(name)))
        else:
            found.append(OptionValue(key=key, text=text, raw=text, place=place))
    return found, faults


def _foreign_key(name: str) -> str | None:
    if not name.startswith(_FOREIGN) or len(name) == len(_FOREIGN):
        return None
    return name.removeprefix(PREFIX).replace("__", ".").replace("_", "-")


def _unknown(name: str) -> str:
    if name.startswith(_FOREIGN.upper()):
        return (
            "Spark's keys have small letters and capitals, so their variables have them, too: write "
            f"{variable_of('spark.executor.memoryOverhead')} for spark.executor.memoryOverhead"
        )
    known = {one.removeprefix(PREFIX): key for one, key in _KEYS.items()}
    near = difflib.get_close_matches(name.removeprefix(PREFIX).upper(), known, n=1, cutoff=0.5)
    hint = f"; did you mean {PREFIX}{near[0]}, which sets {known[near[0]]}?" if near else ""
    return f"no option has this variable{hint}"
