"""The schema of the metadata database, changed only by Alembic revisions.

The revisions are in `migrations/` of the repository and are installed as `unistream/_migrations`. Our version
table and the prefix of our tables separate them from other users of the same database (Dagster has an
`alembic_version` of its own).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, text

from unistream.base.errors import ConfigError
from unistream.metadata.engine import OUTDATED, check_exists, database_errors, open_engine
from unistream.metadata.tables import TABLE_PREFIX, VERSION_TABLE, metadata

UPGRADE_LOCK: Final = 0x756E6973  # "unis": the advisory lock that serialises upgrades on PostgreSQL
LOCK_TIMEOUT_S: Final = 60


def upgrade(url: str, revision: str = "head") -> None:
    """Upgrades the schema to `revision`; creates it in an empty database. Safe to repeat and to run
    concurrently.

    Raises:
        ConfigError: the URL cannot be used, or a newer version of unistream made the schema.
        Unreachable: the database did not answer, or another upgrade did not end in time.
    """
    with _connected(url) as connection:
        _run(command.upgrade, connection, revision)


def downgrade(url: str, revision: str) -> None:
    """Downgrades the schema to `revision` ("base" removes all our tables).

    Raises:
        ConfigError: there is no such database or revision, or a newer version of unistream made the schema.
        Unreachable: the database did not answer.
    """
    check_exists(url)
    with _connected(url) as connection:
        _run(command.downgrade, connection, revision)


def check(url: str) -> None:
    """Returns if the schema is the one of this version.

    Raises:
        ConfigError: it is not; the text names the command to run.
        Unreachable: the database did not answer.
    """
    check_exists(url)
    newest = ScriptDirectory.from_config(_config(None)).get_current_head()
    current = current_revision(url)
    if current == newest:
        return
    if current is not None and current not in known_revisions():
        raise ConfigError(
            f"the metadata database is at revision {current!r}, made by a newer unistream: upgrade unistream"
        )
    raise ConfigError(f"{OUTDATED} (it is at {current or 'no revision'}, wanted is {newest})")


def current_revision(url: str) -> str | None:
    """The revision of a database; None if it has never been upgraded. Raises ConfigError if there is none."""
    check_exists(url)
    with _connected(url, read_only=True) as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        return context.get_current_revision()


def known_revisions() -> list[str]:
    """Every revision of this version, newest first."""
    return [script.revision for script in ScriptDirectory.from_config(_config(None)).walk_revisions()]


def configure_options() -> dict[str, object]:
    """Arguments of `context.configure`, for `migrations/env.py` and a test that compares schemas."""
    return {
        "target_metadata": metadata,
        "version_table": VERSION_TABLE,
        "include_object": is_ours,
        "render_as_batch": True,  # SQLite cannot alter a table in place
        "compare_type": True,
    }


def is_ours(_item: object, name: str | None, kind: str, _reflected: bool, _compared: object) -> bool:
    """Alembic's `include_object`: only our tables."""
    return kind != "table" or (name is not None and name.startswith(TABLE_PREFIX) and name != VERSION_TABLE)


def script_location() -> Path:
    """The folder of the revisions: inside an installed wheel, or next to the package in a work tree.

    Raises:
        ConfigError: neither is there.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise ConfigError(f"the database migrations are missing from the installation at {package}")


def _config(connection: Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


@contextmanager
def _connected(url: str, *, read_only: bool = False) -> Iterator[Connection]:
    engine = open_engine(url)
    try:
        with database_errors(engine), engine.connect() as connection:
            connection.execution_options(unistream_read=read_only)
            with connection.begin():
                if not read_only and engine.dialect.name == "postgresql":
                    connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'"))
                    connection.execute(text("SET LOCAL statement_timeout = 0"))  # tables may be large
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": UPGRADE_LOCK})
                yield connection
    finally:
        engine.dispose()


def _run(step: object, connection: Connection, revision: str) -> None:
    assert callable(step)
    try:
        step(_config(connection), revision)
    except CommandError as error:
        raise ConfigError(f"cannot migrate the metadata database: {error}") from error
