"""`unistream dead-letters`: rows that failed, and their replay."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from msgspec import to_builtins

from unistream.api.load import build
from unistream.base.clock import SystemClock
from unistream.base.errors import ConfigError
from unistream.base.targets import known_target
from unistream.cli.errors import JOB_FAILED, complain, log_to_stderr, report
from unistream.cli.formats import UNKNOWN, since
from unistream.cli.load import load_function
from unistream.cli.options import AsJson, Defines, Parallelism, Verbose, configuration
from unistream.cli.output import console, print_json, print_result
from unistream.cli.tables import Fit, Forms, Grid, PrintedColumn
from unistream.client.embedded.hosts import TARGETS, chosen_target

if TYPE_CHECKING:
    from unistream.dead_letters.corrections import Corrections
    from unistream.dead_letters.place import DeadLetterPlace
    from unistream.dead_letters.replay import Chosen, ReplayOutcome
    from unistream.dead_letters.table import Letters

SHOWN: Final = 20
ID_CHARS: Final = 8
_YES_OR_NO: Final = {True: "yes", False: "no", None: UNKNOWN}
TEXT_CHARS: Final = 200  # of a row, for people; --json has all

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Rows that failed: list and show them, and process them again.",
)

Table = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="Path or URL of a Delta table, or of a folder of files; or MODULE:FUNCTION#SINK, the table or "
        "topic of the sink with that uid in a pipeline.",
    ),
]
Record = Annotated[
    str | None,
    typer.Option(
        "--record", metavar="DIR", help="Of a table in a database, or a topic: where replays are recorded."
    ),
]
Operator = Annotated[
    str | None, typer.Option("--operator", metavar="UID", help="Only of this operator, by uid or name.")
]
ErrorType = Annotated[
    str | None, typer.Option("--error", metavar="CLASS", help="Only of this error, such as ValueError.")
]
Ids = Annotated[
    list[str] | None,
    typer.Option(
        "--letter", metavar="ID", help="Only this one, by the beginning of its id; may be repeated."
    ),
]


Oldest = Annotated[int | None, typer.Option("-n", "--limit", min=1, help="At most so many, oldest first.")]
Edits = Annotated[
    Path | None,
    typer.Option(
        "--edits",
        metavar="FILE",
        help='Corrected rows, one JSON object a line: {"letter": ID, "row": {COLUMN: VALUE}}, or '
        '{"letter": ID, "raw": TEXT} of a source. Only these letters are replayed.',
    ),
]
FromEmptyState = Annotated[
    bool,
    typer.Option("--from-empty-state", help="Also through operators with state, which begin empty."),
]


@app.command("list")
def list_letters(
    table: Table, record: Record = None, defines: Defines = None, as_json: AsJson = False
) -> None:
    """Count the letters of a table by operator and error, and how many of them were replayed."""
    found, replayed = _read(table, record, defines)
    groups = _groups(found, replayed)
    if as_json:
        print_json(groups)
        return
    now_ms = SystemClock().wall_ms()
    console().print(group_grid(groups, now_ms) if groups else "there are no dead letters")


def group_grid(groups: Iterable[dict[str, Any]], now_ms: int) -> Grid:
    """One line for each operator and error."""
    grid = Grid(
        PrintedColumn("OPERATOR", fit=Fit.MIDDLE),
        PrintedColumn("ERROR", fit=Fit.MIDDLE),
        PrintedColumn("LETTERS", right=True),
        PrintedColumn("REPLAYED", right=True),
        PrintedColumn("ATTEMPTS", right=True, rank=1),
        PrintedColumn("FIRST", rank=2),
        PrintedColumn("LAST"),
    )
    for group in groups:
        grid.add(
            group["operator"],
            group["error_type"],
            f"{group['letters']:,}",
            _number(group["replayed"]),
            str(group["attempts"]),
            _when(group["first_ms"], now_ms),
            _when(group["last_ms"], now_ms),
        )
    return grid


@app.command("show")
def show(  # noqa: PLR0917  # typer passes them by name
    table: Table,
    operator: Operator = None,
    error_type: ErrorType = None,
    letters: Ids = None,
    limit: Annotated[
        int, typer.Option("-n", "--limit", min=1, help="At most so many, newest first.")
    ] = SHOWN,
    record: Record = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Show letters: the rows, and why they failed; newest first."""
    from unistream.dead_letters.replay import Chosen

    of_table, replayed = _read(table, record, defines)
    chosen = Chosen(operator=operator, error_type=error_type, ids=tuple(letters or ()))
    rows = of_table.rows.filter(chosen.mask(of_table.rows)).sort_by([("time", "descending")])
    each = [_shown(row, replayed) for row in rows.slice(0, limit).drop_columns(["row_ipc"]).to_pylist()]
    if as_json:
        print_json(each)
        return
    if not each:
        console().print("there are no such dead letters")
        return
    console().print(letter_grid(each, SystemClock().wall_ms(), short=of_table.records is None))
    if rows.num_rows > limit:
        console().print(f"{rows.num_rows - limit:,} more: -n {rows.num_rows}")


def letter_grid(each: Iterable[dict[str, Any]], now_ms: int, *, short: bool) -> Grid:
    """One line for each letter. `short`: its id may be shortened."""
    grid = Grid(
        PrintedColumn("LETTER"),
        PrintedColumn("FAILED"),
        PrintedColumn("OPERATOR", fit=Fit.MIDDLE, rank=2),
        PrintedColumn("ATTEMPT", right=True, rank=3),
        PrintedColumn("REPLAYED", rank=1),
        PrintedColumn("ERROR", fit=Fit.WORDS),
        PrintedColumn("ROW", fit=Fit.WORDS),
    )
    for letter in each:
        error = f"{letter['error_type']}: {letter['error']}" + (
            f" ({letter['error_at']})" if letter["error_at"] else ""
        )
        grid.add(
            letter["letter"][:ID_CHARS] if short else letter["letter"],
            _when(letter["time_ms"], now_ms),
            letter["operator"],
            str(letter["attempt"]),
            _YES_OR_NO[letter["replayed"]],
            error[:TEXT_CHARS],
            letter["row"][:TEXT_CHARS],
        )
    return grid


@app.command("replay")
def replay(  # noqa: PLR0917  # typer passes them by name
    table: Table,
    pipeline: Annotated[
        str,
        typer.Argument(metavar="MODULE:FUNCTION", help="The pipeline, as `unistream run` takes it."),
    ],
    operator: Operator = None,
    error_type: ErrorType = None,
    letters: Ids = None,
    limit: Oldest = None,
    edits: Edits = None,
    from_empty_state: FromEmptyState = False,
    record: Record = None,
    target: Annotated[
        str | None, typer.Option("-t", "--target", help="spark (the default if installed) or local.")
    ] = None,
    parallelism: Parallelism = None,
    defines: Defines = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Process letters again, from the operator that failed on. A letter is replayed once.

    Rows that fail again become letters again, with a raised attempt. Letters of a source are records, which
    it reads as it is configured now; those that are still no rows stay. After a kill, or after a job that
    has failed, the same command goes on.
    """
    from unistream.dead_letters.corrections import read_corrections
    from unistream.dead_letters.replay import Chosen

    log_to_stderr(verbose)
    chosen = Chosen(operator=operator, error_type=error_type, ids=tuple(letters or ()), limit=limit)
    target = chosen_target(target)
    if target not in TARGETS:
        raise ConfigError(
            f"target {target!r} is not one of {', '.join(TARGETS)}: a replay has its own cluster"
        )
    defined = configuration(defines, parallelism)
    place = _place(table, record, defined.to_dict())
    outcome = _replay(
        place,
        pipeline,
        chosen,
        defined.to_dict(),
        target,
        from_empty_state=from_empty_state,
        corrections=None if edits is None else read_corrections(edits),
    )
    _end(outcome, as_json=as_json)


def _end(outcome: ReplayOutcome, *, as_json: bool) -> None:
    """Prints it. Raises Exit: its job has failed."""
    if as_json:
        print_json(outcome)
    else:
        _print_outcome(outcome)
    result = outcome.result
    if result is not None and not result.is_success:
        why = f": {result.failure.message}" if result.failure is not None else ""
        complain(f"the job of the replay ended as {result.state}{why}; the same command goes on")
        raise typer.Exit(JOB_FAILED)


def _replay(
    place: DeadLetterPlace,
    pipeline: str,
    chosen: Chosen,
    config: dict[str, str],
    target: str,
    *,
    from_empty_state: bool,
    corrections: Corrections | None,
) -> ReplayOutcome:
    from unistream.api.environment import Environment
    from unistream.api.sinks import sinks_replaced
    from unistream.dead_letters.graph import appending
    from unistream.dead_letters.ledger import Ledger, TableLock
    from unistream.dead_letters.replay import Replay

    record = place.recorded()
    environment = Environment(config, target=known_target(target))
    with TableLock(record):
        with sinks_replaced(appending):
            build(load_function(pipeline), environment)
        return Replay(
            letters=place.letters(),
            ledger=Ledger(record),
            environment=environment,
            pipeline=pipeline,
            target=target,
            from_empty_state=from_empty_state,
            corrections=corrections,
            on_step=report,
        ).run(chosen)


def _print_outcome(outcome: ReplayOutcome) -> None:
    out = console()
    if outcome.replay is None and outcome.unread:
        out.print(f"nothing was replayed: {outcome.unread:,} letters are still no rows")
        return
    if outcome.replay is None:
        out.print("there is nothing to replay: there are no such letters, or all of them were replayed")
        return
    if outcome.result is not None:
        print_result(outcome.result)
    again = f", {outcome.failed_again:,} of them failed again" if outcome.failed_again else ""
    again += f"; {outcome.unread:,} more are still no rows" if outcome.unread else ""
    out.print(f"replay {outcome.replay}: {outcome.letters:,} letters{again}", markup=False)


def _place(table: str, record: str | None, config: dict[str, str]) -> DeadLetterPlace:
    from unistream.dead_letters.place import place_of

    return place_of(table, record, config, load_function)


def _read(table: str, record: str | None, defines: list[str] | None) -> tuple[Letters, frozenset[str] | None]:
    """The letters, and the ids of those that were replayed; None: it is not said where that is recorded."""
    from unistream.dead_letters.ledger import Ledger

    place = _place(table, record, configuration(defines).to_dict())
    found = place.letters()
    if place.record is None:
        return found, None
    return found, frozenset(Ledger(place.record).replayed()["letter"].to_pylist())


def _groups(found: Letters, replayed: frozenset[str] | None) -> list[dict[str, Any]]:
    """`replayed` None: it is not known which were."""
    from unistream.dead_letters.listing import groups_of

    groups = map(to_builtins, groups_of(found, replayed or frozenset()))
    return [one if replayed is not None else one | {"replayed": None} for one in groups]


def _shown(row: dict[str, Any], replayed: frozenset[str] | None) -> dict[str, Any]:
    """A letter for `--json`: times in ms, and whether it was replayed."""
    from unistream.dead_letters.listing import milliseconds

    for name in ("time", "event_time"):
        row[f"{name}_ms"] = milliseconds(row.pop(name))
    return {**row, "replayed": None if replayed is None else row["letter"] in replayed}


def _number(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count:,}"


def _when(at_ms: int | None, now_ms: int) -> Forms:
    return UNKNOWN if at_ms is None else since(at_ms, now_ms)
