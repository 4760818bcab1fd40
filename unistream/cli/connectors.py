"""`unistream connectors`: what can be read and written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from unistream.cli.options import AsJson
from unistream.cli.output import console, facts_grid, paragraph, print_json
from unistream.cli.tables import Cell, Fit, Grid, PrintedColumn
from unistream.connector.common.machine_code import compile_missing
from unistream.connector.listed import ConnectorPart, ListedConnector, connector, connectors, parts

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
    console().print(listed(found))


def listed(found: Iterable[ListedConnector]) -> Grid:
    """One line for each connector."""
    grid = Grid(
        PrintedColumn("NAME"),
        PrintedColumn("SOURCE"),
        PrintedColumn("SINK"),
        PrintedColumn("THE SINK WRITES", rank=2),
        PrintedColumn("FROM", rank=1),
        PrintedColumn("WHAT IT IS", fit=Fit.WORDS, rank=3),
    )
    for entry in found:
        grid.add(
            entry.name,
            _class(entry.info.source),
            _class(entry.info.sink),
            entry.info.promise or "-",
            _origin(entry),
            entry.problem or entry.info.summary,
        )
    return grid


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
    out = console()
    for part in shown(found, made):
        out.print(part, markup=False)


def shown(found: ListedConnector, made: Iterable[ConnectorPart]) -> Iterator[Grid | Cell]:
    """The parts of the page of one connector, one below the other."""
    facts: list[tuple[str, Cell]] = [
        ("name", found.name),
        ("what it is", found.problem or found.info.summary),
        ("from", _origin(found)),
    ]
    if found.info.promise:
        facts.append(("the sink writes", found.info.promise))
    if found.info.extra:
        facts.append(("needs", f"pip install 'unistream[{found.info.extra}]'"))
    if found.info.guide:
        facts.append(("guide", found.info.guide))
    yield facts_grid(facts)
    for part in made:
        yield ""
        yield paragraph(Text.assemble((part.name, "bold"), f" ({part.kind}): {part.problem or part.summary}"))
        if part.options:
            yield arguments(part)


@app.command("compile")
def compile_loops() -> None:
    """Compile what reads records, where no machine code was installed, so that no first job waits for it. For
    images of machines."""
    compile_missing()


def arguments(part: ConnectorPart) -> Grid:
    """One line for each argument of a class."""
    grid = Grid(
        PrintedColumn("ARGUMENT"),
        PrintedColumn("DEFAULT", fit=Fit.MIDDLE),
        PrintedColumn("MEANING", fit=Fit.WORDS),
    )
    for option in part.options:
        default = Text("required", style="bold") if option.default is None else option.default
        grid.add(option.name, default, option.meaning)
    return grid


def _described(found: ListedConnector) -> dict[str, Any]:
    return {
        "name": found.name,
        "package": found.package,
        "problem": found.problem,
        **msgspec.to_builtins(found.info),
    }


def _origin(found: ListedConnector) -> str:
    extra = f"[{found.info.extra}]" if found.info.extra and found.package == "unistream" else ""
    return f"{found.package}{extra}"


def _class(place: str) -> str:
    return place.partition(":")[2] or "-"
