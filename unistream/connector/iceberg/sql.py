"""A catalogue in a SQL database, which closes its connections if it cannot be opened."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.sql import SqlCatalog


class ClosingSqlCatalog(SqlCatalog):  # type: ignore[misc]  # pyiceberg is not read by mypy
    """pyiceberg leaves them to the collector: for as long as it pleases, the database has a session."""

    def __init__(self, name: str, **properties: Any) -> None:
        try:
            super().__init__(name, **properties)
        except BaseException:
            engine: Any = getattr(self, "engine", None)
            if engine is not None:
                engine.dispose()
            raise
