"""`unistream db`: the schema of the metadata database."""

from __future__ import annotations

from typing import Annotated

import typer

from unistream.metadata import migrate
from unistream.metadata.engine import parse_url

app = typer.Typer(
    help="Create or check the schema of the metadata database.", no_args_is_help=True, add_completion=False
)

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="UNISTREAM_METADATA_URL",
        help="SQLAlchemy URL of the database, as in metadata.url.",
    ),
]


@app.command()
def upgrade(url: Url) -> None:
    """Create the tables, or upgrade them to this version. Safe to repeat."""
    migrate.upgrade(url)
    typer.echo(f"{_shown(url)} is at revision {migrate.current_revision(url)}")


@app.command()
def check(url: Url) -> None:
    """Exit with 0 if the schema is that of this version; otherwise say what to do."""
    migrate.check(url)
    typer.echo(f"{_shown(url)} is up to date")


def _shown(url: str) -> str:
    return parse_url(url).render_as_string(hide_password=True)
