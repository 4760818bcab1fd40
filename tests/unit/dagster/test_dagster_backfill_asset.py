"""The asset of a backfill without a cluster: what it refuses, its command, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import psutil
import pytest

import unistream as us
from unistream.base.config import parse_assignments
from unistream.base.config_file import PlaceKind, checked, read_variables, written
from unistream.base.errors import ConfigError
from unistream.base.secrets import looked_up
from unistream.dagster import (
    UnistreamResource,
    build_backfill_asset,
    build_commit_sensor,
    sink_asset,
    unistream_assets,
)
from unistream.dagster.operation.backfill_asset import reference_of, result_of
from unistream.dagster.operation.backfill_command import BackfillCommandResult, options_for, perform

DAYS = dg.DailyPartitionsDefinition("2026-01-01")
FIGURES = {
    "backfill": "0a1b",
    "verdict": "replaced",
    "reason": None,
    "table": "lake/hours",
    "from_ms": 0,
    "to_ms": 60_000,
    "fence_version": 4,
    "version": 5,
    "rows_removed": 7,
    "rows_added": 8,
    "rows_outside": 2,
    "savepoint": "file:///s/1",
    "job": "b" * 32,
}
REFUSED = {**FIGURES, "verdict": "refused", "reason": "the watermark is not there", "version": None}


def build(env: us.Environment) -> None:
    """A pipeline."""


def stream() -> dg.AssetsDefinition:
    specs = [sink_asset("hours", sink_uid="hours"), sink_asset("late", sink_uid="late")]

    @unistream_assets(specs=specs, name="flights")
    def flights(): ...  # type: ignore[no-untyped-def]

    return flights


def backfill(**arguments: Any) -> dg.AssetsDefinition:
    pipeline = arguments.pop("pipeline", "flights.pipeline:build")
    return build_backfill_asset(
        arguments.pop("stream", None) or stream(),
        pipeline,
        **{"key": "days", "partitions_def": DAYS, **arguments},
    )


def local() -> Callable[[us.Environment], object]:
    def inner(env: us.Environment) -> None: ...

    return inner


@dg.asset
def plain() -> None: ...


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"partitions_def": dg.StaticPartitionsDefinition(["a"])}, "a backfill is of a range of time"),
        ({"partitions_def": None}, "a backfill is of a range of time"),
        (
            {"partitions_def": dg.TimeWindowPartitionsDefinition(
                start="2026-01-01", fmt="%Y-%m-%d", cron_schedule="0 0 * * *", exclusions=["0 0 * * 6"])},
            "without exclusions",
        ),
        ({"stream": plain}, "asset plain is of no sink"),
        ({"sink": "nothing"}, "no asset of the sink 'nothing'; it has 'hours', 'late'"),
        ({"pipeline": "flights.pipeline"}, "is not MODULE:FUNCTION"),
        ({"pipeline": lambda _: None}, "give a function at the top of a module"),
        ({"pipeline": local()}, "give a function at the top of a module"),
        ({"pipeline": build.__call__}, "give a function at the top of a module"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_when_the_module_is_loaded(arguments: Any, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        backfill(**arguments)
    assert text in str(refused.value)


def test_a_script_s_own_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "__module__", "__main__")
    with pytest.raises(ConfigError, match="'build' cannot be imported there"):
        reference_of(build)


def test_it_is_in_the_pool_of_the_stream_and_the_watermark_closes_its_partitions() -> None:
    asset = backfill(pipeline=build, key=["lake", "days"], sink="hours", group_name="upkeep")
    [spec] = asset.specs
    assert (spec.key, spec.group_name) == (dg.AssetKey(["lake", "days"]), "upkeep")
    assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey("hours")]
    assert asset.op.pool == "unistream_flights"
    assert asset.backfill_policy == dg.BackfillPolicy.single_run()
    assert backfill(pool="other").op.pool == "other"
    sensor = build_commit_sensor([stream()], partitions=[asset])
    resources = {"unistream": UnistreamResource(target="remote")}
    dg.Definitions.validate_loadable(dg.Definitions([stream(), asset], sensors=[sensor], resources=resources))


def run(asset: dg.AssetsDefinition, resource: UnistreamResource, *days: str) -> tuple[str, str]:
    """Why it has failed, and the command in its log."""
    tags = {"dagster/asset_partition_range_start": days[0], "dagster/asset_partition_range_end": days[-1]}
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [asset], instance=instance, resources={"unistream": resource}, tags=tags, raise_on_error=False
        )
        said = [entry.user_message for entry in instance.all_logs(result.run_id)]
    failure = result.failure_data_for_node("days")
    assert failure is not None
    assert failure.user_failure_data is not None
    commands = [line for line in said if line.startswith("unistream backfill")]
    return failure.user_failure_data.description or "", "\n".join(commands)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))


def test_a_resource_that_does_not_fit_starts_nothing() -> None:
    reason, command = run(backfill(), UnistreamResource(target="local"), "2026-01-01")
    assert "let the target of the resource be remote" in reason
    assert command == ""


def test_the_command_is_for_the_whole_range_in_absolute_times() -> None:
    asset = backfill(
        partitions_def=dg.DailyPartitionsDefinition("2026-03-01", timezone="Europe/Berlin"),
        sink="hours",
        column="at",
        lookback="2 d",
        history_complete=True,
        savepoint_dir="s3://lake/savepoints",
        state_dir="state",
        job_name="planes",
    )
    resource = UnistreamResource(target="remote", config={"parallelism.default": "2"})
    reason, command = run(asset, resource, "2026-03-28", "2026-03-29")  # the clock is put forward
    assert command == (
        "unistream backfill planes --pipeline flights.pipeline:build --from 2026-03-27T23:00:00Z "
        "--to 2026-03-29T22:00:00Z -t remote --json --sink hours --column at --lookback 2 d "
        "--savepoint-path s3://lake/savepoints --state state --history-complete"
    )
    assert reason.startswith("no cluster runs here; start one"), "the sentence of the command"
    begin = datetime(2026, 3, 28, tzinfo=ZoneInfo("Europe/Berlin"))
    assert begin.utcoffset() != datetime(2026, 3, 30, tzinfo=ZoneInfo("Europe/Berlin")).utcoffset()


def ended(code: int, output: object = None, *lines: str) -> BackfillCommandResult:
    return BackfillCommandResult(
        code=code, output=b"" if output is None else json.dumps(output).encode(), lines=lines
    )


@pytest.mark.parametrize(
    ("end", "text", "retries"),
    [
        (ended(2, None, "note", "error: --to is late"), "--to is late", False),
        (
            ended(2, None, "╭─ Error ──╮", "│ No such option: -x │", "╰──────────╯"),
            "No such option: -x",
            False,
        ),
        (ended(1, REFUSED, "error: x"), "nothing was replaced: the watermark is not there", False),
        (ended(0, {**REFUSED, "verdict": "aborted"}), "nothing was replaced", False),
        (ended(1, None, "error: OSError: disk"), "OSError: disk. Re-execute this run", True),
        (ended(3, None, "error: no answer"), "no answer. Re-execute this run", True),
        (ended(-9), "the command was ended by SIGKILL. Re-execute", True),
        (ended(130, None, "error: interrupted"), "interrupted. Re-execute", True),
        (ended(0), "exit code 0. Re-execute", True),
        (ended(0, {"verdict": "replaced"}), "exit code 0. Re-execute", True),
    ],
)
def test_how_a_command_fails(end: BackfillCommandResult, text: str, retries: bool) -> None:
    with pytest.raises(dg.Failure) as failure:
        result_of(end)
    assert text in (failure.value.description or "")
    assert failure.value.allow_retries is retries


def test_what_a_command_has_done_is_metadata() -> None:
    result = result_of(ended(0, FIGURES))
    assert result.data_version == dg.DataVersion("5")
    metadata = {name.removeprefix("unistream/"): value for name, value in (result.metadata or {}).items()}
    assert metadata == {
        "backfill": "0a1b",
        "table": "lake/hours",
        "range": "1970-01-01T00:00:00Z to 1970-01-01T00:01:00Z",
        "table_version": "5",
        "fence_version": "4",
        "rows_removed": 7,
        "rows_added": 8,
        "rows_outside": 2,
        "savepoint": dg.MetadataValue.path("file:///s/1"),
        "job_id": "b" * 32,
    }


def words(module: str) -> list[str]:
    times = ("--from", "2026-01-01", "--to", "2026-01-02")
    return ["backfill", "flights", "--offline", "--pipeline", f"{module}:build", *times]


def test_a_command_that_is_refused() -> None:
    lines: list[str] = []
    end = perform(words("no_such_module"), lines.append, end_s=10)
    assert (end.code, end.figures, end.is_final) == (2, None, True)
    assert lines == list(end.lines)
    assert end.sentence.startswith("there is no module 'no_such_module'")


@pytest.mark.parametrize(
    ("does", "end_s", "by_check"),
    [
        pytest.param("", 30, False, id="it ends when it is asked to"),
        pytest.param("", 30, True, id="since its check says so"),
        pytest.param("signal.signal(signal.SIGTERM, signal.SIG_IGN)", 0.1, False, id="it does not"),
    ],
)
def test_a_command_does_not_outlive_a_call_that_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, end_s: float, by_check: bool
) -> None:
    lines = ("import signal, sys, time", does, "sys.stderr.write('here\\n')", "time.sleep(10_000)")
    (tmp_path / "slow_to_load.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(psutil.Process().children(recursive=True))

    seen: list[str] = []

    def interrupt(line: str) -> None:
        assert line == "here"
        seen.append(line)
        if not by_check:
            raise KeyboardInterrupt

    def check() -> None:
        if seen:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perform(words("slow_to_load"), interrupt, end_s=end_s, check=check)
    assert set(psutil.Process().children(recursive=True)) <= before


def test_the_command_has_the_configuration_and_no_secret_among_its_words() -> None:
    given = {
        "client.timeout": "9 s",
        "execution.checkpointing.dir": "s3://lake/${env:KEPT_AS_IT_IS}",
        "s3.secret-key": "hunter2",
        "metadata.url": "postgresql://u:${env:PW}@h/d",
        "spark.ssl.keyPassword": "hunter2",
    }
    options = options_for(given)
    assert "hunter2" not in str(options)
    assigned = parse_assignments(options.words[1::2])
    found, unknown = read_variables(options.variables)
    levels = [checked(level, looked_up)[0] for level in (found, written(assigned, PlaceKind.COMMAND_LINE))]
    assert {key: one.text for level in levels for key, one in level.items()} == given
    assert unknown == []
