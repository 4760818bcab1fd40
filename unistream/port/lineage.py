"""What sources, sinks and operators may say for lineage; all of it is optional."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from unistream.model.lineage import LineageDataset

Origin: TypeAlias = tuple[int, str]
"""(number of an input, column of its rows)."""

Origins: TypeAlias = Mapping[str, frozenset[Origin]]
"""Column of the output -> what its values are made of."""


@runtime_checkable
class NamesDatasets(Protocol):
    """A source or sink that knows what it reads or writes."""

    def lineage_datasets(self) -> Sequence[LineageDataset]:
        """What the source reads, or the sink writes; without I/O, and without secrets."""
        ...


@runtime_checkable
class TracesColumns(Protocol):
    """An operator that knows from which columns its output is made. What only chooses rows (a predicate, the
    time of a window) does not count."""

    def column_origins(self, inputs: Sequence[pa.Schema], tag: str | None) -> Origins:
        """The origins of the output's columns, or of those of the side output `tag`; a column that is left
        out has unknown origins.

        Args:
            inputs: Columns of each logical input.
            tag: None: the main output.
        """
        ...


def same_columns(schema: pa.Schema, index: int = 0) -> dict[str, frozenset[Origin]]:
    """The origins of an operator's columns that forwards those of one input."""
    return {name: frozenset({(index, name)}) for name in schema.names}
