"""``unistream stack buckets``: buckets of the S3 server of the local stack, which makes none by itself."""

from __future__ import annotations

import re
from typing import Annotated, Final

import typer

from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.cli.stack_topics import Folder, stack_folder
from unistream.testing import devtools

app = typer.Typer(help="Buckets of the local S3 server.", add_completion=False, no_args_is_help=True)

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")  # by Amazon's rules


@app.command("create")
def create(
    names: Annotated[list[str], typer.Argument(help="The buckets.", show_default=False)],
    folder: Folder = None,
) -> None:
    """Make buckets, and show the options with which jobs find them. One that exists stays as it is."""
    require("s3", "the local S3 server")
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise ConfigError(
                f"{name!r} is no name of a bucket: 3 to 63 small letters, digits, dots, hyphens, such as lake"
            )
    address = devtools.address_of(folder or stack_folder(), devtools.S3)
    for name in names:
        typer.echo(f"{devtools.make_bucket(address, name)} is there")
    options = devtools.options_of(address)
    typer.echo("jobs find it with " + " ".join(f"-D {key}={value}" for key, value in options.items()))
