"""Pages of the command line, made of answers that were recorded from a cluster: no process, no clock.

python -m tests.unit.cli.screens     writes those of the documentation, docs/pictures/cli-*.svg
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
from msgspec.structs import replace
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from unistream.backfill.prepare import BackfillPlan
from unistream.base.config import Configuration
from unistream.base.config_file import (
    OptionValue,
    PlaceKind,
    checked,
    placed_option,
    placed_options,
    read_variables,
    read_yaml,
    written,
)
from unistream.base.ids import CheckpointId, JobId, OperatorUid
from unistream.cli import (
    backfill_output,
    checkpoints,
    config,
    connectors,
    dead_letters,
    exceptions,
    group,
    info,
    output,
    plan,
    progress,
    savepoint,
    sinks,
    stack,
    taskmanager,
    token,
)
from unistream.cli.errors import between_words
from unistream.cli.logs import logged
from unistream.cli.run import why_failed
from unistream.cli.tables import Cell, Grid
from unistream.client.job.staged_files import StagedByJob
from unistream.client.remote.job_client import result_of
from unistream.connector.catalogue import ConnectorInfo
from unistream.connector.listed import ConnectorPart, ListedConnector
from unistream.core.memory import memory_plan
from unistream.core.restore import RestorePlan
from unistream.master.shown.history import NO_ARCHIVE
from unistream.model.access import Scope, TokenShown
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.job_info import JobInfo, JobSummary, TaskManagerInfo
from unistream.model.job_log_line import JobLogLine
from unistream.port.group import GroupCommit, TableVersion
from unistream.savepoint.finalize import Finalized, Outcome, SinkCommit
from unistream.savepoint.inspection import Inspection
from unistream.testing.devtools import ServerStatus

ANSWERS: Final = Path(__file__).parent / "answers"
PICTURES: Final = Path(__file__).parents[3] / "docs" / "pictures"
NARROW: Final = 80
WIDE: Final = 200
NOW_MS: Final = 1_796_007_742_000  # soon after the answers were recorded

T = TypeVar("T")

Parts = Iterable[Grid | Cell]
Fields = dict[str, Any]


def answer(name: str, kind: type[T]) -> T:
    """A recorded one."""
    return msgspec.json.decode((ANSWERS / f"{name}.json").read_bytes(), type=kind)


def job(name: str) -> JobInfo:
    return answer(f"info-{name}", JobInfo)


def jobs() -> list[tuple[str, JobSummary]]:
    found = answer("list", Fields)["jobs"]
    return [(one["cluster"] or "", msgspec.convert(one["job"], JobSummary)) for one in found]


def snapshots(name: str) -> CheckpointsInfo:
    return msgspec.convert(answer(f"checkpoints-{name}", Fields)["checkpoints"], CheckpointsInfo)


def one_checkpoint() -> Parts:
    figures = snapshots("flights_per_minute").latest_completed
    assert figures is not None
    return checkpoints.shown_checkpoint(figures, NOW_MS)


def without_archive() -> JobInfo:
    """Its cluster was killed."""
    given = job("fares")
    subtasks = tuple(replace(one, metrics=type(one.metrics)()) for one in given.subtasks)
    return replace(given, state="SUSPENDED", subtasks=subtasks, incomplete=NO_ARCHIVE, exceptions=())


def connector_parts() -> Parts:
    known = answer("connector", Fields)
    [found] = [one for one in listed_connectors() if one.name == known["name"]]
    return connectors.shown(found, msgspec.convert(known["parts"], list[ConnectorPart]))


def listed_connectors() -> list[ListedConnector]:
    fields = answer("connectors", list[Fields])
    return [
        ListedConnector(
            name=one["name"],
            package=one["package"],
            problem=one["problem"],
            info=msgspec.convert(one, ConnectorInfo),
        )
        for one in fields
    ]


def workers() -> list[tuple[str, TaskManagerInfo]]:
    found = answer("taskmanagers", Fields)["taskmanagers"]
    return [(one["cluster"], msgspec.convert(one, TaskManagerInfo)) for one in found]


def tokens() -> list[TokenShown]:
    """One that is used, one that was revoked, one that has expired, one with a long name."""
    day_ms = 86_400_000

    def made(id_: str, name: str, scope: Scope, **more: int | None) -> TokenShown:
        times = {"created_ms": NOW_MS - 3 * day_ms, "expires_ms": None, "revoked_ms": None, "used_ms": None}
        return TokenShown(id=id_, name=name, scope=scope, **(times | more))  # type: ignore[arg-type]

    return [
        made(
            "3f9c0a1b2c3d", "nightly", Scope.OPERATE, expires_ms=NOW_MS + 90 * day_ms, used_ms=NOW_MS - 60_000
        ),
        made("a41b7c0d9e8f", "a laptop that is gone", Scope.ADMIN, revoked_ms=NOW_MS - day_ms),
        made("77aa88bb99cc", "the trial of last week", Scope.READ, expires_ms=NOW_MS - day_ms),
        made("0123456789ab", "dashboard " + "of the operations team " * 3, Scope.READ, used_ms=NOW_MS),
    ]


def restore_plan() -> RestorePlan:
    return msgspec.convert(
        {key: value for key, value in answer("plan", Fields).items() if key != "refused"}, RestorePlan
    )


def progress_line(info: JobInfo, width: int) -> str:
    """With the spinner before it."""
    return "⠋ " + progress.line(info, width - progress.SPINNER_CHARS)


def run(width: int) -> Parts:
    """The line that changes in place, as it is after a restart; then how the job ends."""
    fares = job("fares")
    yield progress_line(replace(fares, state="RUNNING"), width)
    yield from map(output.paragraph, output.result_lines(result_of(fares)))
    yield from (between_words(line, width) for line in why_failed(result_of(fares)))


GROUP: Final = GroupCommit(
    group="orders",
    number=7,
    lineage="l",
    job="c34d54aecdbc62d8f056ce871859cc6a",
    checkpoint=41,
    committed_ms=NOW_MS - 4_000,
    tables={
        "orders": TableVersion(kind="delta", address="s3://lake/orders", version=41),
        "customers": TableVersion(
            kind="iceberg", address="lake.sales.customers_by_country", version=8_273_460
        ),
        "totals": TableVersion(kind="sql", address="postgresql://db.example:5432/sales/totals", version=None),
    },
)
STAGED: Final = [
    StagedByJob(job="c34d54aecdbc62d8f056ce871859cc6a", files=1_204),
    StagedByJob(
        job="23751297d784f30b4810b5cbcc09b2d8",
        files=3,
        kept="its newest checkpoint s3://lake/checkpoints/23751297d784f30b4810b5cbcc09b2d8/chk-9 lists "
        "them as pending",
    ),
]
FINALIZED: Final = Finalized(
    path="/srv/savepoints/savepoint-c34d54",
    job=JobId("c34d54aecdbc62d8f056ce871859cc6a"),
    job_name="orders",
    checkpoint_id=CheckpointId(23),
    commits=(
        SinkCommit(
            sink=OperatorUid("lake"),
            operator=OperatorUid("lake-committer"),
            connector="delta",
            checkpoints=(CheckpointId(22), CheckpointId(23)),
            committables=12,
            rows=48_211,
            outcome=Outcome.COMMITTED,
        ),
        SinkCommit(
            sink=OperatorUid("totals"),
            operator=OperatorUid("totals-committer"),
            connector="sql",
            checkpoints=(CheckpointId(23),),
            committables=1,
            outcome=Outcome.UNKNOWN,
            reason="the database at db.example:5432 does not answer",
        ),
    ),
)
BACKFILL: Final = BackfillPlan(
    table="s3://lake/flights_per_minute",
    table_version=412,
    sink="lake",
    column="window_start",
    begin="2026-11-01T00:00:00Z",
    end="2026-11-08T00:00:00Z",
    rows=120_960,
    reads_from="2026-10-31T23:59:00Z",
    reads_to="2026-11-08T00:00:00Z",
    history={"flights": ("2026-01-01T00:00:00Z", "2026-11-30T03:00:00Z")},
    job="c34d54aecdbc62d8f056ce871859cc6a",
    job_name="flights_per_minute",
    cluster="http://127.0.0.1:41493",
    finished_to="2026-11-30T02:58:00Z",
    resumes="41c7a0ff6b8e4ff09a2a1a3b8d1a5c11",
    notes=("the history has no rows between 2026-11-03 and 2026-11-04",),
)

CONFIG_FILE: Final = b"""\
execution:
  checkpointing:
    interval: 10 s
    dir: s3://${env:BUCKET}/unistream/checkpoints
high-availability: zookeeper
s3:
  access-key: lake
  secret-key: ${file:/run/secrets/s3}
metadata.url: postgresql+psycopg://unistream:hunter2@db.example:5432/unistream
rest.prot: 8081
spark.executor.memoryOverhead: 1g
"""


def config_levels() -> list[dict[str, OptionValue]]:
    """A file, variables and a command line."""
    variables = {"UNISTREAM_CONF_REST__PORT": "8081", "UNISTREAM_CONF_PARALLELISM__DEFAULT": "4"}
    given = {"parallelism.default": 2, "rest.port": 0}
    found = (
        read_yaml(CONFIG_FILE, "/etc/unistream/config.yaml")[0],
        read_variables(variables)[0],
        written(given, PlaceKind.COMMAND_LINE),
    )
    return [checked(level, lambda _what, _kind, where: where.lower())[0] for level in found]


def config_faults() -> list[Cell]:
    path = "/etc/unistream/config.yaml"
    found, broken = read_yaml(CONFIG_FILE + b"rest.port: [8081]\n", path)
    options, faults = checked(found, lambda _what, _kind, where: where.lower())
    lines: list[Cell] = [str(fault) for fault in (*faults, *broken)]
    return [*lines, config.verdict(path, len(options), len(lines))]


SCREENS: Final[Mapping[str, Callable[[int], Parts]]] = {
    "list": lambda _width: [output.jobs_grid(jobs(), NOW_MS)],
    "info_running": lambda _width: info.shown(job("flights_per_minute"), NOW_MS),
    "info_bounded": lambda _width: info.shown(job("history"), NOW_MS),
    "info_plain_sink": lambda _width: info.shown(
        replace(job("history"), plain_sinks=(OperatorUid("lake"),)), NOW_MS
    ),
    "info_failed": lambda _width: info.shown(job("fares"), NOW_MS),
    "info_subtasks": lambda _width: info.shown(job("fares"), NOW_MS, subtasks=True),
    "info_without_archive": lambda _width: info.shown(without_archive(), NOW_MS),
    "run": run,
    "run_progress": lambda width: [
        progress_line(job(name), width) for name in ("history", "flights_per_minute")
    ],
    "exceptions": lambda _width: exceptions.shown(job("fares"), NOW_MS),
    "exceptions_attempts": lambda _width: [exceptions.past_attempts(job("fares").subtasks, NOW_MS)],
    "logs": lambda _width: map(logged, answer("logs", list[JobLogLine])),
    "checkpoints": lambda _width: checkpoints.shown(snapshots("flights_per_minute"), NOW_MS),
    "checkpoints_after_failures": lambda _width: checkpoints.shown(snapshots("fares"), NOW_MS),
    "checkpoints_one": lambda _width: one_checkpoint(),
    "savepoint_inspect": lambda _width: savepoint.shown(answer("inspect", Inspection)),
    "savepoint_finalize": lambda _width: savepoint.outcome_lines(FINALIZED, dry_run=False),
    "savepoint_query": lambda _width: [
        savepoint.rows_grid(pa.Table.from_pylist(answer("query", list[Fields])))
    ],
    "plan": lambda _width: plan.shown(restore_plan()),
    "config_show": lambda _width: config.shown("/etc/unistream/config.yaml", placed_options(config_levels())),
    "config_show_nothing": lambda _width: config.shown(None, []),
    "config_explain": lambda _width: [
        output.facts_grid(config.explained(placed_option("execution.checkpointing.dir", config_levels())))
    ],
    "config_explain_hidden": lambda _width: [
        output.facts_grid(config.explained(placed_option("parallelism.default", config_levels())))
    ],
    "config_check": lambda _width: config_faults(),
    "connectors_list": lambda _width: [connectors.listed(listed_connectors())],
    "connectors_info": lambda _width: connector_parts(),
    "group_show": lambda _width: group.shown(GROUP),
    "sinks_clean": lambda _width: [sinks.staged(STAGED, dry_run=True)],
    "dead_letters_list": lambda _width: [
        dead_letters.group_grid(answer("letters-list", list[Fields]), NOW_MS)
    ],
    "dead_letters_show": lambda _width: [
        dead_letters.letter_grid(answer("letters-show", list[Fields]), NOW_MS, short=True)
    ],
    "token_list": lambda _width: [token.listed(tokens(), NOW_MS)],
    "taskmanager_list": lambda _width: [taskmanager.worker_grid(workers())],
    "taskmanager_memory": lambda _width: [taskmanager.parts(memory_plan(Configuration(), 2))],
    "stack_status": lambda _width: [stack.server_grid(answer("stack", list[ServerStatus]))],
    "backfill_plan": lambda _width: [output.facts_grid(backfill_output.facts(BACKFILL))],
}
"""What each command shows."""

PICTURED: Final = {
    "list": "unistream list --all",
    "info_running": "unistream info flights_per_minute",
    "checkpoints": "unistream checkpoints flights_per_minute",
    "run": "unistream run flows:fares -t local",
}
"""Screens of the documentation, with the command."""


def printed(parts: Parts, width: int, *, color: bool) -> str:
    """In a terminal of so many columns."""
    out = console(width, color=color)
    for part in parts:
        out.print(part, markup=False)
    text: str = out.file.getvalue()  # type: ignore[attr-defined]
    return text


def console(width: int, *, color: bool, record: bool = False) -> Console:
    return Console(
        file=io.StringIO(),
        width=width,
        highlight=False,
        soft_wrap=not record,  # a picture breaks what is too long as a terminal does
        force_terminal=True,
        color_system="standard" if color else None,
        record=record,
        legacy_windows=False,
        _environ={},
    )


def picture(name: str) -> str:
    """An SVG of a terminal of 80 columns."""
    out = console(NARROW, color=True, record=True)
    out.print(f"[dim]$[/dim] [bold]{PICTURED[name]}[/bold]")
    for part in SCREENS[name](NARROW):
        out.print(part, markup=False)
    without_fonts = re.sub(
        r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL
    )  # of a network
    unique = f"cli-{name}".replace("_", "-")
    return out.export_svg(title="unistream", code_format=without_fonts, unique_id=unique)


def main() -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    for name in PICTURED:
        (PICTURES / f"cli-{name.replace('_', '-')}.svg").write_text(picture(name))


if __name__ == "__main__":
    main()
