"""What the master needs to know of a SQL source, as data; and whether the columns are still those."""

from __future__ import annotations

import base64
from typing import Final

import msgspec
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.secrets import Secret
from unistream.connector.sql.identity import is_another
from unistream.connector.sql.source_cells import Cell
from unistream.connector.sql.source_database import ReadDatabase, Reads
from unistream.connector.sql.source_types import Described
from unistream.connector.sql.statements import SqlTableName

START_AGAIN: Final = (
    "start the job without the checkpoint, or give the source another uid and start with "
    "--allow-non-restored-state (allow_non_restored_state=True)"
)


class SqlSourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a SQL source. `column`: of the ranges; None: the first one of the key of the table, if
    it has one. `increasing`: it is read on, as it grows, behind `starting_after`. `schema`: of the rows, as
    `written` has it. `given`: columns whose types the user has named."""

    url: str | Secret
    table: str = ""
    table_schema: str = ""
    query: str = ""
    column: str | None = None
    increasing: bool = False
    starting_after: Cell | None = None
    margin_ms: int = 0
    splits: int | None = None
    rows_per_split: int
    timeout_ms: int
    schema: str
    given: tuple[str, ...] = ()

    def reads(self) -> Reads:
        return Reads(SqlTableName(self.table, self.table_schema) if self.table else None, self.query)

    def read_schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.schema)))


def written(schema: pa.Schema) -> str:
    """A schema as text."""
    return base64.b64encode(schema.serialize()).decode()


def check_identity(database: ReadDatabase, known: str, found: str) -> None:
    """The table is the one that was read before. Raises ConfigError: another one has its name."""
    if is_another(known, found):
        raise ConfigError(
            f"{database.named} was dropped and made again since the job began to read it, so its values mean "
            f"other rows; {START_AGAIN}"
        )


def check_same(database: ReadDatabase, schema: pa.Schema, given: frozenset[str]) -> dict[str, Described]:
    """The database still has these columns, of these types; `given`: whatever type they have. Returns all
    columns that there are.

    Raises:
        ConfigError: it has not.
    """
    there = {one.name: one for one in database.described()}
    for field in schema:
        found = there.get(field.name)
        if found is None:
            raise ConfigError(
                f"{database.named} has no column {field.name!r} any more; it has {', '.join(there)}"
            )
        if field.name in given or (found.kind is not None and found.kind.equals(field.type)):
            continue
        raise ConfigError(
            f"{database.named}: column {field.name!r} is {found.native} now, and was read as {field.type}; "
            "start a job that reads it as it is, or name its type by types="
        )
    return there
