"""``unistream stack topics``: topics of the Kafka broker of the local stack, which makes none by itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.testing import devtools

app = typer.Typer(help="Topics of the local Kafka.", add_completion=False, no_args_is_help=True)

Folder = Annotated[
    Path | None,
    typer.Option("--dir", help="Folder of the stack. Default: $UNISTREAM_STACK_DIR or the cache."),
]


@app.command("create")
def create(
    names: Annotated[list[str], typer.Argument(help="The topics.", show_default=False)],
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="Of each of them.")] = 1,
    folder: Folder = None,
) -> None:
    """Make topics. One that exists stays as it is, if it has as many partitions."""
    broker = _broker(folder)
    there = devtools.topic_partitions(broker)
    for name in names:
        if name not in there:
            devtools.create_topic(broker, name, partitions)
            typer.echo(f"created {name} with {_counted(partitions)}")
        elif there[name] == partitions:
            typer.echo(f"{name} is there already, with {_counted(partitions)}")
        else:
            raise ConfigError(f"topic {name!r} is there already, with {_counted(there[name])}")


@app.command("list")
def list_topics(folder: Folder = None) -> None:
    """Show the topics and how many partitions each has."""
    for name, partitions in sorted(devtools.topic_partitions(_broker(folder)).items()):
        typer.echo(f"{name}  {_counted(partitions)}")


def stack_folder() -> Path:
    """Where the stack is that nobody names a folder for."""
    return Path(os.environ.get("UNISTREAM_STACK_DIR") or devtools.cache_dir() / "stack")


def _counted(partitions: int) -> str:
    return f"{partitions} partition{'' if partitions == 1 else 's'}"


def _broker(folder: Path | None) -> str:
    require("kafka", "the local Kafka")
    return devtools.address_of(folder or stack_folder(), devtools.KAFKA)
