"""`unistream explain`: what a pipeline becomes. `unistream plan`: whether it can start from a savepoint.

Neither starts anything.
"""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer
from rich.markup import escape

from unistream.api.load import build
from unistream.cli.errors import JOB_FAILED
from unistream.cli.jobs import absolute
from unistream.cli.load import load_function
from unistream.cli.options import AllowNonRestored, AsJson, Defines, Parallelism, Pipeline, configuration
from unistream.cli.output import console, new_table, print_json
from unistream.core.restore import RestorePlan, StateOutcome

_STYLES: Final = {
    StateOutcome.KEPT: "green",
    StateOutcome.NEW: "green",
    StateOutcome.MIGRATED: "cyan",
    StateOutcome.DROPPED: "yellow",
    StateOutcome.UNKNOWN: "yellow",
    StateOutcome.REFUSED: "red",
}


def explain(
    function: Pipeline,
    parallelism: Parallelism = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Show what a pipeline becomes: operators, tasks, subtasks and regions. Nothing is started."""
    from unistream.api.environment import Environment

    environment = Environment(configuration(defines, parallelism))
    build(load_function(function), environment)
    if as_json:
        print_json(environment.explain_json())
    else:
        sys.stdout.write(environment.explain() + "\n")


def plan(  # noqa: PLR0917  # typer passes them by name
    function: Pipeline,
    against: Annotated[
        str, typer.Option("--against", metavar="PATH", help="Directory of a savepoint or checkpoint.")
    ],
    parallelism: Parallelism = None,
    allow_non_restored: AllowNonRestored = False,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Show what happens to each state of a savepoint if a pipeline starts from it. Nothing is started.

    Exit code 1: the pipeline cannot start from it.
    """
    from unistream.api.environment import Environment
    from unistream.savepoint.plan import plan as plan_against
    from unistream.savepoint.reading import read_savepoint

    config = configuration(defines, parallelism)
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
    table = new_table("OPERATOR", "STATE", "ROWS", "", "WHY")
    for operator in found.operators:
        table.add_row(escape(operator.uid), "", "", _styled(operator.outcome), escape(operator.why))
        for state in operator.states:
            rows = "" if state.rows is None else f"{state.rows:,}"
            table.add_row("", escape(state.state), rows, _styled(state.outcome), escape(state.why))
    out = console()
    out.print(table)
    for problem in found.problems:
        out.print("[red]refused[/red]  ", end="")
        out.print(problem, markup=False)
    if not found.is_refused:
        out.print("the pipeline can start from it")


def _styled(outcome: StateOutcome) -> str:
    return f"[{_STYLES[outcome]}]{outcome.value}[/{_STYLES[outcome]}]"
