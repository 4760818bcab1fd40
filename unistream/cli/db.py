"""`unistream db`: the schema of the metadata database, and how much it holds."""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated, Final

import typer

from unistream.base.config import METADATA_URL
from unistream.base.errors import ConfigError
from unistream.base.ids import LeaderEpoch
from unistream.base.secrets import resolved
from unistream.cli.options import AsJson, Defines, configuration
from unistream.cli.output import print_json
from unistream.metadata import migrate, upkeep
from unistream.metadata.engine import parse_url
from unistream.metadata.store import SqlMetadataStore
from unistream.port.retention import MetadataRetention

NO_LEADER: Final = LeaderEpoch(0)  # of rows that are changed by hand

app = typer.Typer(
    help="Create, check, change and clean up the metadata database.",
    no_args_is_help=True,
    add_completion=False,
)


def _named(url: str | None) -> str:
    """The database: that of the option, or of the configuration. Raises ConfigError: neither says which."""
    if url:
        return resolved("--url", url)
    given = configuration(None).find(METADATA_URL)
    if given is None:
        raise ConfigError(f"which database? Give --url, or set {METADATA_URL.key} in config.yaml")
    return resolved(METADATA_URL.key, given)


Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="UNISTREAM_METADATA_URL",
        help="SQLAlchemy URL of the database; without it metadata.url of the configuration.",
        callback=_named,
    ),
]


@app.command()
def upgrade(url: Url = "", as_json: AsJson = False) -> None:
    """Create the tables, or upgrade them to this version. Safe to repeat."""
    migrate.upgrade(url)
    _say_revision(url, as_json=as_json)


@app.command()
def downgrade(
    *,
    url: Url = "",
    to: Annotated[
        str,
        typer.Option("--to", metavar="REV", help="Such as 0002; base: no tables at all."),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="For base: remove the whole history.")] = False,
    as_json: AsJson = False,
) -> None:
    """Change the tables back to those of an older version, before that version is started.

    Removes what the older version does not know: below 0003 the outbox, events, links to runs, artifacts and
    epochs. Jobs, checkpoints, exceptions and commits stay. Stop the clusters that use the database before.
    """
    if to == "base" and not yes:
        raise ConfigError("--to base removes the history of all jobs: say --yes if that is what you want")
    migrate.downgrade(url, to)
    _say_revision(url, as_json=as_json)


@app.command()
def check(url: Url = "", as_json: AsJson = False) -> None:
    """Exit with 0 if the schema is that of this version; otherwise say what to do."""
    migrate.check(url)
    if as_json:
        rows = upkeep.row_counts(url)
        print_json({"url": _shown(url), "revision": migrate.current_revision(url), "rows": rows})
    else:
        typer.echo(f"{_shown(url)} is up to date")


@app.command()
def prune(
    url: Url = "",
    defines: Defines = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove what is no longer kept, as clusters do by themselves; -D metadata.retention.…=… sets limits.

    In short steps: clusters that use the database go on writing.
    """
    retention = MetadataRetention.of(configuration(defines))
    migrate.check(url)
    removed: Counter[str] = Counter()
    store = SqlMetadataStore(url)
    try:
        now_ms = time.time_ns() // 1_000_000
        for step in store.prune(retention, now_ms, NO_LEADER, dry_run=dry_run):
            removed[step.table] += step.rows
    finally:
        store.close()
    found = {table: rows for table, rows in sorted(removed.items()) if rows}
    if as_json:
        print_json({"url": _shown(url), "dry_run": dry_run, "rows": found})
        return
    for table, rows in found.items():
        typer.echo(f"{rows:>10,}  {table}")
    did = "would be removed from" if dry_run else "removed from"
    typer.echo(f"{sum(found.values()):,} rows {did} {_shown(url)}")


@app.command()
def vacuum(url: Url = "", as_json: AsJson = False) -> None:
    """Give the space of removed rows back.

    A SQLite file is written again: there must be room for a second one, and clusters wait meanwhile.
    """
    migrate.check(url)
    before, after = upkeep.vacuum(url)
    if as_json:
        print_json({"url": _shown(url), "bytes_before": before, "bytes_after": after})
    else:
        typer.echo(f"{_shown(url)}: {before:,} B before, {after:,} B now")


def _say_revision(url: str, *, as_json: bool) -> None:
    revision = migrate.current_revision(url)
    if as_json:
        print_json({"url": _shown(url), "revision": revision})
    else:
        typer.echo(
            f"{_shown(url)} " + ("has no tables" if revision is None else f"is at revision {revision}")
        )


def _shown(url: str) -> str:
    return parse_url(url).render_as_string(hide_password=True)
