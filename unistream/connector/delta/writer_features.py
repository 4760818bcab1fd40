"""What a table asks of those who write it, by its protocol and its columns: what this sink keeps, and what it
refuses by name, before the first row.

deltalake refuses a commit with a feature that it does not have, but only when the files are staged; and of
some that it has it leaves the rule to those who write the files, as this sink does.

    kept     appendOnly (rows are appended alone), changeDataFeed (deltalake writes the changes of a merge),
             deletionVectors, timestampNtz, v2Checkpoint
    refused  column mapping, constraints, generated columns, identity columns, invariants, default values, and
             each feature that is not known here

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from unistream.base.errors import ConfigError
from unistream.connector.delta.column_mapping import MODE, NONE

APPEND_ONLY: Final = "delta.appendOnly"
_CONSTRAINT: Final = "delta.constraints."
_KEPT: Final = frozenset({"appendOnly", "changeDataFeed", "deletionVectors", "timestampNtz", "v2Checkpoint"})
_OF_PROPERTIES: Final = frozenset({"columnMapping", "checkConstraints", "generatedColumns", "invariants"})
"""A table may have them and make no use of them: what it uses stands in its properties and columns."""
_OF_COLUMNS: Final = {  # key of a column's metadata: what it is called
    "delta.generationExpression": "is generated",
    "delta.identity.start": "is an identity column",
    "delta.invariants": "has an invariant",
    "CURRENT_DEFAULT": "has a default value",
}


def column_rules(fields: Collection[Any]) -> dict[str, str]:
    """Rules of columns, by their names; `fields`: those of deltalake's schema, also inside of structs.

    >>> from deltalake import Field
    >>> computed = Field("n", "long", metadata={"delta.generationExpression": "m + 1"})
    >>> column_rules([computed, Field("m", "long")])
    {'n': 'is generated (m + 1)'}
    """
    return dict(_rules("", fields))


def _rules(parent: str, fields: Collection[Any]) -> Iterator[tuple[str, str]]:
    for field in fields:
        name = f"{parent}{field.name}"
        for key, called in _OF_COLUMNS.items():
            if key in field.metadata:
                yield name, f"{called} ({field.metadata[key]!s:.100})"
        yield from _rules(f"{name}.", getattr(field.type, "fields", ()))


def check_writable(
    table: str,
    features: Collection[str],
    configuration: Mapping[str, str | None],
    rules: Mapping[str, str],
    *,
    replaces_rows: bool,
) -> None:
    """Raises ConfigError: rows that this sink writes would break a rule of the table.

    >>> check_writable("t", {"appendOnly"}, {"delta.appendOnly": "true"}, {}, replaces_rows=False)
    >>> check_writable("t", {"rowTracking"}, {}, {}, replaces_rows=False)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    unistream.base.errors.ConfigError: table t has the feature rowTracking, which this sink does not keep; ...
    """
    mapping = configuration.get(MODE) or NONE
    if mapping != NONE:
        raise ConfigError(
            f"table {table} uses column mapping ({mapping}), which this sink does not write; write to one "
            "without it"
        )
    for key in configuration:
        if key.startswith(_CONSTRAINT):
            raise ConfigError(
                f"table {table} has a constraint ({key.removeprefix(_CONSTRAINT)}), which this sink does not "
                "check; drop it, and filter the rows before the sink"
            )
    if rules:
        name, rule = next(iter(rules.items()))
        raise ConfigError(
            f"table {table}: column {name!r} {rule}, which this sink does not keep; write to a table without "
            "that rule, with the column computed by with_columns"
        )
    if unknown := sorted(set(features) - _KEPT - _OF_PROPERTIES):
        raise ConfigError(
            f"table {table} has {'features' if len(unknown) > 1 else 'the feature'} {', '.join(unknown)}, "
            "which this sink does not keep; drop it from the table (ALTER TABLE … DROP FEATURE), or write to "
            "another one"
        )
    if replaces_rows and (configuration.get(APPEND_ONLY) or "").lower() == "true":
        raise ConfigError(
            f"table {table} takes rows only ({APPEND_ONLY}), and none is replaced in it: use "
            'mode="append", or unset that property'
        )
