"""An Iceberg catalog in a folder (or a database), for tests: its tables as others see and change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from datafusion import SessionContext
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

TABLE = "lake.rows"


class Lake:
    """One catalog and its warehouse."""

    def __init__(self, folder: Path, uri: str | None = None) -> None:
        self.warehouse = folder / "warehouse"
        self.properties = {
            "type": "sql",
            "uri": uri or f"sqlite:///{folder / 'catalog.db'}",
            "warehouse": str(self.warehouse),
        }

    @contextmanager
    def catalog(self) -> Iterator[Any]:
        found = load_catalog("default", **{**self.properties, "warehouse": self.warehouse.as_uri()})
        try:
            yield found
        finally:
            found.close()

    @contextmanager
    def table(self, name: str = TABLE) -> Iterator[Table]:
        """As of now."""
        with self.catalog() as catalog:
            yield catalog.load_table(name)

    def rows(self, query: str = "SELECT id FROM t ORDER BY id", name: str = TABLE) -> list[tuple[Any, ...]]:
        """By iceberg-rust and DataFusion, which have no code in common with pyiceberg. Empty: no table."""
        try:
            with self.table(name) as table:
                context = SessionContext()
                context.register_table("t", table)
                batches = context.sql(query).collect()
        except NoSuchTableError:
            return []
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

    def ids(self, name: str = TABLE) -> list[int]:
        return [row[0] for row in self.rows(name=name)]

    def summaries(self, name: str = TABLE) -> list[dict[str, str]]:
        """Of all snapshots, the oldest first."""
        with self.table(name) as table:
            return [
                dict(one.summary.additional_properties)
                for one in table.snapshots()
                if one.summary is not None
            ]

    def files(self) -> list[Path]:
        return sorted(self.warehouse.rglob("*.parquet"))

    def change(self, how: Callable[[Table], None], name: str = TABLE) -> None:
        """Somebody else does something to the table."""
        with self.table(name) as table:
            how(table)

    def create(self, schema: pa.Schema, name: str = TABLE, **options: Any) -> None:
        with self.catalog() as catalog:
            catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
            catalog.create_table(name, schema, **options)

    def drop(self, name: str = TABLE) -> None:
        with self.catalog() as catalog:
            catalog.drop_table(name)
