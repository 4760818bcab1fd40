"""`unistream connectors`: what can be read and written."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape

from unistream.base.extras import is_installed
from unistream.cli.options import AsJson
from unistream.cli.output import console, new_table, print_facts, print_json
from unistream.connector.catalogue import Found, Part, connector, connectors, parts
from unistream.connector.common import warm_up_json

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="What can be read and written: sources and sinks."
)


@app.command("list")
def list_connectors(as_json: AsJson = False) -> None:
    """List the connectors that are installed here."""
    found = connectors()
    if as_json:
        print_json([_described(one) for one in found])
        return
    table = new_table("name", "source", "sink", "the sink writes", "from", "what it is")
    for one in found:
        table.add_row(
            *(one.name, _class(one.info.source), _class(one.info.sink), one.info.promise or "-"),
            *(_origin(one), escape(one.problem or one.info.summary)),
        )
    console().print(table)


@app.command("info")
def info(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `unistream connectors list` shows it.")],
    as_json: AsJson = False,
) -> None:
    """Show one connector: its source and its sink, and what they take."""
    found = connector(name)
    made = parts(found)
    if as_json:
        print_json({**_described(found), "parts": msgspec.to_builtins(made)})
        return
    facts = [
        ("name", found.name),
        ("what it is", escape(found.problem or found.info.summary)),
        ("from", _origin(found)),
    ]
    if found.info.promise:
        facts.append(("the sink writes", found.info.promise))
    if found.info.extra:
        facts.append(("needs", escape(f"pip install 'unistream[{found.info.extra}]'")))
    if found.info.guide:
        facts.append(("guide", found.info.guide))
    print_facts(facts)
    for part in made:
        _print_part(part)


@app.command("compile")
def compile_loops() -> None:
    """Compile what reads JSON and Kafka, so that no first job waits for it. For images of machines."""
    warm_up_json()
    if is_installed("kafka"):
        from unistream.connector.kafka import warm_up

        warm_up()


def _print_part(part: Part) -> None:
    out = console()
    out.print(f"\n[bold]{part.name}[/bold] ({part.kind})  {escape(part.problem or part.summary)}")
    if not part.options:
        return
    table = new_table("argument", "default", "meaning")
    for option in part.options:
        default = "[bold]required[/bold]" if option.default is None else escape(option.default)
        table.add_row(option.name, default, escape(option.meaning))
    out.print(table)


def _described(found: Found) -> dict[str, Any]:
    return {
        "name": found.name,
        "package": found.package,
        "problem": found.problem,
        **msgspec.to_builtins(found.info),
    }


def _origin(found: Found) -> str:
    extra = f"[{found.info.extra}]" if found.info.extra and found.package == "unistream" else ""
    return escape(f"{found.package}{extra}")


def _class(place: str) -> str:
    return place.partition(":")[2] or "-"
