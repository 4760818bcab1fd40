"""`unistream savepoint`: takes, inspects, queries, writes and finalizes savepoints."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from unistream.api.load import build
from unistream.base.clock import SystemClock
from unistream.base.extras import require
from unistream.cli import jobs
from unistream.cli.errors import JOB_FAILED
from unistream.cli.formats import age, count, moment, size
from unistream.cli.jobs import absolute
from unistream.cli.load import load_function
from unistream.cli.options import AsJson, Defines, configuration
from unistream.cli.output import console, facts_grid, print_json
from unistream.cli.tables import Cell, Fit, Grid, PrintedColumn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from unistream.api.environment import Environment
    from unistream.savepoint.contents import RowsInFlight
    from unistream.savepoint.finalize import Finalized
    from unistream.savepoint.inspection import Inspection

NATIVE_TEXT: Final = "native: keyed state is in files of its backend, if it has a format of its own"
ROWS_SHOWN_MAX: Final = 200  # of a query, for people; programs get all

Path = Annotated[str, typer.Argument(metavar="PATH", help="Directory of a savepoint or checkpoint.")]


class _TakeByDefault(TyperGroup):
    """`savepoint JOB` means `savepoint take JOB`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["take", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_TakeByDefault,
    add_completion=False,
    no_args_is_help=True,
    help="Take a savepoint of a job (`savepoint JOB`); inspect, query, write or finalize one.",
)


app.command("take")(jobs.savepoint)


@app.command("inspect")
def inspect(
    path: Path,
    as_json: AsJson = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify/--no-verify", help="Read all files and compare checksums, or only check their sizes."
        ),
    ] = True,
    defines: Defines = None,
) -> None:
    """Show the contents of a savepoint: operators, states, sizes, watermarks, positions, pending commits.

    Exit code 2: a file is damaged; the error names it.
    """
    from unistream.savepoint.inspection import inspection
    from unistream.savepoint.reading import read_savepoint

    configuration(defines)
    inspected = inspection(read_savepoint(_absolute(path)), SystemClock().wall_ms(), verify=verify)
    if as_json:
        print_json(inspected)
        return
    out = console()
    for part in shown(inspected):
        out.print(part, markup=False)


@app.command("query")
def query(
    path: Path,
    sql: Annotated[str, typer.Argument(metavar="SQL", help='Tables are "operator uid/state name".')],
    as_json: AsJson = False,
) -> None:
    """Run SQL over the states of a savepoint (with DuckDB)."""
    from unistream.savepoint.query import query as run
    from unistream.savepoint.reading import read_savepoint

    require("savepoint", "a query of a savepoint")  # before the savepoint is read
    savepoint = read_savepoint(_absolute(path))
    result = run(savepoint, sql)
    if as_json:
        print_json(result.to_pylist())
        return
    out = console()
    out.print(rows_grid(result.slice(0, ROWS_SHOWN_MAX)))
    if result.num_rows > ROWS_SHOWN_MAX:
        more = result.num_rows - ROWS_SHOWN_MAX
        out.print(f"… and {more:,} more rows: use LIMIT, or --json to print all")
    if savepoint.in_flight:
        out.print(f"in flight: {_in_flight(savepoint.in_flight)}")


def rows_grid(rows: pa.Table) -> Grid:
    """Rows of a query."""
    import pyarrow as pa

    kinds = [pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in rows.schema.types]
    headings = zip(rows.schema.names, kinds, strict=True)
    grid = Grid(*(PrintedColumn(name, fit=Fit.WORDS, right=right) for name, right in headings))
    for row in rows.to_pylist():
        grid.add(*("" if value is None else _shown(value) for value in row.values()))
    return grid


@app.command("write")
def write(  # noqa: PLR0917  # typer passes them by name
    uid: Annotated[str, typer.Option("--operator", metavar="UID", help="The operator's uid.")],
    state: Annotated[
        str, typer.Option("--state", metavar="NAME", help="Name of the state, as the operator declares it.")
    ],
    file: Annotated[
        list[str], typer.Option("--file", metavar="FILE", help="Parquet or Arrow; may be repeated.")
    ],
    out: Annotated[str, typer.Option("--out", metavar="PATH", help="The savepoint's directory, a new one.")],
    keys: Annotated[
        str, typer.Option("--keys", metavar="A,B", help="Columns of the key, in order; none for lists.")
    ] = "",
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            help="value, list, map, reducing, aggregating, timers, table; without keys: list-split, "
            "list-union, list-broadcast; default: as in --base, otherwise value.",
        ),
    ] = None,
    max_parallelism: Annotated[
        int | None, typer.Option("--max-parallelism", metavar="N", help="Number of key groups.")
    ] = None,
    base: Annotated[
        str | None, typer.Option("--base", metavar="PATH", help="A savepoint to copy everything else from.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a savepoint from rows of files: columns of the key, and `value` (for a map also `map_key`).

    Timers have `__timestamp` (ms) instead; their state is `__event_timers` or `__processing_timers`. A list
    of an operator without keys has only `value`, a broadcast map (`list-broadcast`) `map_key` and `value`.
    """
    from unistream.savepoint.files import write_state

    savepoint = write_state(
        uid=uid,
        state=state,
        keys=[key.strip() for key in keys.split(",") if key.strip()],
        files=file,
        out=_absolute(out),
        kind=kind,
        max_parallelism=max_parallelism,
        base=absolute(base),
    )
    if as_json:
        print_json({"savepoint": savepoint})
    else:
        console().print(f"savepoint written: {savepoint}", markup=False)


@app.command("finalize")
def finalize(
    path: Path,
    pipeline: Annotated[
        str | None,
        typer.Option(
            "--pipeline",
            metavar="MODULE:FUNCTION",
            help="Needed for your own sinks, and those with credentials in the pipeline.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what is pending.")] = False,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Commit what a savepoint lists as pending, without starting its job. Safe to repeat.

    Exit code 1: some of it is not committed.
    """
    from unistream.api.finalizing import finalize_savepoint

    build_pipeline = None
    if pipeline is not None:
        function = load_function(pipeline)

        def build_pipeline(environment: Environment) -> None:
            build(function, environment)

    outcome = finalize_savepoint(
        _absolute(path), build_pipeline, config=configuration(defines), dry_run=dry_run
    )
    if as_json:
        print_json(outcome)
    else:
        printed = console()
        for part in outcome_lines(outcome, dry_run=dry_run):
            printed.print(part, markup=False)
    if not dry_run and not outcome.is_complete:
        raise typer.Exit(JOB_FAILED)


def outcome_lines(found: Finalized, *, dry_run: bool) -> Iterator[Grid | Cell]:
    """The parts of the page, one below the other."""
    if found.commits:
        yield finalized(found)
    if not found.commits:
        yield "nothing is pending"
    elif dry_run:
        yield "nothing was committed (--dry-run)"
    elif found.had_nothing_to_do:
        yield "nothing to do: already committed"
    elif found.is_complete:
        yield "everything is committed"
    else:
        yield "not everything is committed; nothing was deleted, and repeating is safe"
    if found.advice and not dry_run:
        yield found.advice


def finalized(found: Finalized) -> Grid:
    """One line for each committer."""
    grid = Grid(
        PrintedColumn("COMMITTER", fit=Fit.MIDDLE),
        PrintedColumn("CHECKPOINTS"),
        PrintedColumn("PENDING", right=True),
        PrintedColumn("ROWS", right=True),
        PrintedColumn("OUTCOME"),
        PrintedColumn("WHY", fit=Fit.WORDS),
    )
    for commit in found.commits:
        grid.add(
            commit.operator,
            ", ".join(map(str, commit.checkpoints)),
            f"{commit.committables:,}",
            f"{commit.rows:,}" if commit.rows else "",
            commit.outcome.value,
            commit.reason,
        )
    return grid


def _absolute(path: str) -> str:
    return absolute(path) or path


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def shown(found: Inspection) -> Iterator[Grid | Cell]:
    """The parts of the page, one below the other."""
    yield facts_grid(_facts(found))
    yield ""
    yield _states(found)
    has_watermarks = any(operator.watermark for operator in found.operators)
    parts = [(has_watermarks, _watermarks), (found.positions, _positions), (found.pending_commits, _commits)]
    for is_there, part in parts:
        if is_there:
            yield ""
            yield part(found)


def _facts(found: Inspection) -> list[tuple[str, Cell]]:
    facts: list[tuple[str, Cell]] = [
        ("path", found.path),
        ("kind", found.meaning),
        ("job", f"{found.job_name} ({found.job})"),
        ("checkpoint", f"{found.checkpoint_id}, format {found.format}"),
        ("taken", f"{moment(found.taken_ms)}, {age(0, found.age_ms)}"),
        ("size", size(found.size)),
        ("checksums", "correct" if found.verified else "not compared (--no-verify)"),
        *([("format", NATIVE_TEXT)] if found.savepoint_format == "native" else []),
        *([("in flight", _in_flight(found.in_flight))] if found.in_flight else []),
        ("resume", _how_to_resume(found)),
    ]
    if found.advice:
        facts.append(("", found.advice))
    return facts


def _in_flight(rows: Sequence[RowsInFlight]) -> str:
    stored = ", ".join(dict.fromkeys(one.vertex for one in rows))
    unprocessed = size(sum(one.size for one in rows))
    return f"{unprocessed} of unprocessed rows at {stored}, in no state yet: a job processes them first"


def _how_to_resume(found: Any) -> str:
    """A command, quoted for the shell."""
    path = found.path if found.can_resume else found.resumable
    if path is None:
        return "no"
    command = f"unistream run … -s {shlex.quote(path)}"
    return command if found.can_resume else f"not from this one: {command}"


def _states(found: Inspection) -> Grid:
    grid = Grid(
        PrintedColumn("OPERATOR", fit=Fit.MIDDLE),
        PrintedColumn("STATE", fit=Fit.MIDDLE),
        PrintedColumn("KIND"),
        PrintedColumn("ROWS", right=True),
        PrintedColumn("SIZE", right=True),
        PrintedColumn("KEY GROUPS", rank=2),
        PrintedColumn("SUBTASKS", rank=1),
    )
    for operator in found.operators:
        width = str(operator.parallelism)
        if operator.finished_subtasks:
            width += f", {len(operator.finished_subtasks)} finished"
        if not operator.states:
            grid.add(operator.uid, "", "", "", "", "", width)
        for state in operator.states:
            groups = (
                "" if state.key_groups is None else f"{state.key_groups:,} of {operator.max_parallelism:,}"
            )
            kind = f"{state.kind}, pickled" if state.pickled else state.kind
            grid.add(operator.uid, state.name, kind, count(state.rows), size(state.size), groups, width)
    return grid


def _watermarks(found: Inspection) -> Grid:
    grid = Grid(
        PrintedColumn("OPERATOR", fit=Fit.MIDDLE),
        PrintedColumn("LEAST WATERMARK"),
        PrintedColumn("GREATEST, OF ITS SUBTASKS"),
    )
    for operator in found.operators:
        span = operator.watermark
        known = ("not recorded", "") if span is None else (span.least, span.greatest)
        grid.add(operator.uid, *known)
    return grid


def _positions(found: Inspection) -> Grid:
    grid = Grid(
        PrintedColumn("SOURCE", fit=Fit.MIDDLE),
        PrintedColumn("SPLIT", fit=Fit.MIDDLE),
        PrintedColumn("SUBTASK"),
        PrintedColumn("POSITION", fit=Fit.WORDS),
    )
    for split in found.positions:
        subtask = "unassigned" if split.subtask is None else str(split.subtask)
        grid.add(split.uid, split.split, subtask, _fields(split.position))
    return grid


def _fields(position: object) -> str:
    if not isinstance(position, dict):
        return str(position)
    return ", ".join(f"{key} {_shown(value)}" for key, value in position.items())


def _commits(found: Inspection) -> Grid:
    grid = Grid(
        PrintedColumn("COMMITTER", fit=Fit.MIDDLE),
        PrintedColumn("CHECKPOINT", right=True),
        PrintedColumn("WRITER", right=True),
        PrintedColumn("PENDING", right=True),
        PrintedColumn("SIZE", right=True),
    )
    for commit in found.pending_commits:
        grid.add(
            commit.uid,
            "unknown" if commit.checkpoint_id is None else str(commit.checkpoint_id),
            "unknown" if commit.writer is None else str(commit.writer),
            f"{commit.committables:,}",
            size(commit.size),
        )
    return grid
