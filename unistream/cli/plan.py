"""`unistream explain`: what a pipeline becomes. `unistream plan`: whether it can start from a savepoint.

Neither starts anything.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Final

import typer
from rich.text import Text

from unistream.api.load import build
from unistream.base.errors import ConfigError
from unistream.cli.errors import JOB_FAILED
from unistream.cli.jobs import absolute
from unistream.cli.load import load_function
from unistream.cli.options import AllowNonRestored, AsJson, Defines, Parallelism, Pipeline, layered_options
from unistream.cli.output import console, paragraph, print_json
from unistream.cli.tables import Cell, Fit, Grid, PrintedColumn
from unistream.client.job.resume import LATEST
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

    environment = Environment(layered_options(defines, parallelism))
    build(load_function(function), environment)
    if as_json:
        print_json(environment.explain_json())
    else:
        sys.stdout.write(environment.explain() + "\n")


def plan(  # noqa: PLR0917  # typer passes them by name
    function: Pipeline,
    against: Annotated[
        str,
        typer.Option(
            "--against",
            metavar="PATH",
            help="Directory of a savepoint or checkpoint; 'latest': the one that 'unistream run -s latest' "
            "would go on from.",
        ),
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

    environment = Environment(layered_options(defines, parallelism))
    build(load_function(function), environment)
    found_at = environment.latest_snapshot() if against == LATEST else absolute(against)
    if found_at is None:
        raise ConfigError(
            "there is no snapshot that the pipeline would go on from; it starts from the beginning"
        )
    savepoint = read_savepoint(found_at)
    graph, code = environment.job_graph()
    savepoint_plan = plan_against(
        savepoint, graph, code, environment.config, allow_non_restored=allow_non_restored
    )
    if as_json:
        print_json(
            {
                "refused": savepoint_plan.is_refused,
                "operators": savepoint_plan.operators,
                "problems": savepoint_plan.problems,
            }
        )
    else:
        out = console()
        for part in shown(savepoint_plan):
            out.print(part, markup=False)
    if savepoint_plan.is_refused:
        raise typer.Exit(JOB_FAILED)


def shown(found: RestorePlan) -> Iterator[Grid | Cell]:
    """The parts of the page, one below the other."""
    yield states(found)
    for problem in found.problems:
        yield paragraph(Text.assemble(_styled(StateOutcome.REFUSED), f": {problem}"))
    if not found.is_refused:
        yield "the pipeline can start from it"


def states(found: RestorePlan) -> Grid:
    """One line for each operator, and for each of its states."""
    grid = Grid(
        PrintedColumn("OPERATOR", fit=Fit.MIDDLE),
        PrintedColumn("STATE", fit=Fit.MIDDLE),
        PrintedColumn("ROWS", right=True),
        PrintedColumn("OUTCOME"),
        PrintedColumn("WHY", fit=Fit.WORDS),
    )
    for operator in found.operators:
        grid.add(operator.uid, "", "", _styled(operator.outcome), operator.why)
        for state in operator.states:
            rows = "" if state.rows is None else f"{state.rows:,}"
            grid.add("", state.state, rows, _styled(state.outcome), state.why)
    return grid


def _styled(outcome: StateOutcome) -> Text:
    return Text(outcome.value, style=_STYLES[outcome])
