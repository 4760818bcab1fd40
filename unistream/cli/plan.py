"""`unistream plan`: what would become of a savepoint's state if a pipeline started from it."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.markup import escape
from rich.table import Table

from unistream.base.config import PARALLELISM
from unistream.cli.errors import JOB_FAILED
from unistream.cli.jobs import absolute
from unistream.cli.load import build, load_function
from unistream.cli.options import AsJson, Defines, configuration
from unistream.cli.output import console, print_json
from unistream.core.restore import Fate, RestorePlan

_STYLES: Final = {
    Fate.KEPT: "green",
    Fate.NEW: "green",
    Fate.MIGRATED: "cyan",
    Fate.DROPPED: "yellow",
    Fate.UNKNOWN: "yellow",
    Fate.REFUSED: "red",
}


def plan(  # noqa: PLR0917  # typer passes them by name
    function: Annotated[
        str, typer.Argument(metavar="MODULE:FUNCTION", help="A function that takes an Environment.")
    ],
    against: Annotated[
        str, typer.Option("--against", metavar="PATH", help="Directory of a savepoint or checkpoint.")
    ],
    parallelism: Annotated[
        int | None, typer.Option("-p", "--parallelism", help="Of operators that set none.")
    ] = None,
    allow_non_restored: Annotated[
        bool, typer.Option("--allow-non-restored-state", help="Drop state whose operator is gone.")
    ] = False,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Show what becomes of each state of a savepoint if the pipeline starts from it. Nothing is started.

    Exit code 1: something is refused.
    """
    from unistream.api.environment import Environment
    from unistream.savepoint.plan import plan as plan_against
    from unistream.savepoint.reading import read_savepoint

    config = configuration(defines)
    if parallelism is not None:
        config = config.merged({PARALLELISM.key: str(parallelism)})
    savepoint = read_savepoint(absolute(against) or against)
    environment = Environment(config)
    build(load_function(function), environment)
    graph, code = environment.job_graph()
    found = plan_against(savepoint, graph, code, environment.config, allow_non_restored=allow_non_restored)
    if as_json:
        print_json({"refused": found.is_refused, "operators": found.operators, "problems": found.problems})
    else:
        _print(found)
    if found.is_refused:
        raise typer.Exit(JOB_FAILED)


def _print(found: RestorePlan) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("OPERATOR", "STATE", "ROWS", "", "WHY"):
        table.add_column(heading, overflow="fold")
    for operator in found.operators:
        table.add_row(escape(operator.uid), "", "", _styled(operator.fate), escape(operator.why))
        for state in operator.states:
            rows = "" if state.rows is None else f"{state.rows:,}"
            table.add_row("", escape(state.state), rows, _styled(state.fate), escape(state.why))
    out = console()
    out.print(table)
    for problem in found.problems:
        out.print("[red]refused[/red]  ", end="")
        out.print(problem, markup=False)
    if not found.is_refused:
        out.print("the job can start from it")


def _styled(fate: Fate) -> str:
    return f"[{_STYLES[fate]}]{fate.value}[/{_STYLES[fate]}]"
