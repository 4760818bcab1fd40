"""What the checks of a stream say of a job."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from msgspec import structs

import unistream as us
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, JobId, LineageId, VertexId
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.dagster import (
    UnistreamResource,
    build_row_count_check,
    build_stream_checks,
    sink_asset,
    unistream_assets,
)
from unistream.dagster.run.seen import Complete
from unistream.dagster.sensor.judging import HealthLimits, SourceRows, judged, row_count_verdict, source_rows
from unistream.master.job.job_counters import summed
from unistream.model.job_info import ExceptionInfo, JobInfo, SubtaskInfo
from unistream.model.messages import TaskMetrics

NOW_MS = 1_000_000
INFO = JobInfo(
    job=JobId("a" * 32),
    name="rows",
    lineage=LineageId("l"),
    state="RUNNING",
    target="local",
    submitted_ms=NOW_MS - 300_000,
)
ALL = HealthLimits(checkpoint_age_ms=60_000, restarts=2, late_rows=10)
RATIOS = HealthLimits(late_ratio=0.1, watermark_lag_ms=60_000, dead_letter_ratio=0.1)


def checkpoint(age_ms: int) -> Complete:
    return Complete(CheckpointId(7), NOW_MS - age_ms)


@pytest.mark.parametrize(
    ("change", "age_ms", "failed"),
    [
        pytest.param({}, 5_000, {}, id="healthy"),
        pytest.param(
            {"state": "RESTARTING"}, 5_000, {"stream_is_running": "is RESTARTING"}, id="it restarts"
        ),
        pytest.param({}, 60_001, {"checkpoint_age": "checkpoint 7, 60 s ago"}, id="an old checkpoint"),
        pytest.param(
            {},
            None,
            {"checkpoint_age": "there is no complete checkpoint, 300 s after the submission"},
            id="none at all",
        ),
        pytest.param({"submitted_ms": NOW_MS - 1_000}, None, {}, id="none yet"),
        pytest.param({"restarts": 3}, 5_000, {"restarts": "3 restarts, allowed 2"}, id="restarts"),
        pytest.param(
            {"late_rows": {"a": 6, "b": 5}}, 5_000, {"late_rows": "11 late rows, allowed 10"}, id="late rows"
        ),
        pytest.param({"restarts": 2, "late_rows": {"a": 10}}, 60_000, {}, id="at the limits"),
    ],
)
def test_a_job_is_judged(change: dict[str, Any], age_ms: int | None, failed: dict[str, str]) -> None:
    newest = None if age_ms is None else checkpoint(age_ms)
    found = judged(structs.replace(INFO, **change), newest, ALL, NOW_MS)
    assert list(found) == ALL.names
    assert {name for name, verdict in found.items() if not verdict.passed} == set(failed)
    for name, text in failed.items():
        assert text in found[name].text


NOT_EVERY = "not every source of the job says how many records"


@pytest.mark.parametrize(
    ("metrics", "text"),
    [
        pytest.param({"a.pendingRecords": 60, "b.pendingRecords": 40}, "", id="at the limit"),
        pytest.param({"a.pendingRecords": 101}, "101 records are not read yet, allowed 100", id="above it"),
        pytest.param({"records_in": 5}, NOT_EVERY, id="files"),
        pytest.param(
            {"a.pendingRecords": 60, "a.pendingUnknown": 0, "b.pendingUnknown": 1},
            NOT_EVERY,
            id="a part of it",
        ),
        pytest.param({"a.pendingRecords": 60, "a.pendingUnknown": 0}, "", id="all of it"),
    ],
)
def test_how_far_a_job_is_behind_its_topics(metrics: dict[str, int], text: str) -> None:
    info = structs.replace(INFO, metrics=metrics)
    found = judged(info, checkpoint(0), HealthLimits(records_behind=100), NOW_MS)["records_behind"]
    assert found.passed is (not text)
    assert text in found.text
    assert ("records_behind" in found.metadata) is (text != NOT_EVERY)


@pytest.mark.parametrize(
    ("state", "user", "behind"),
    [
        pytest.param("RUNNING", {"orders.pendingRecords": 2, "orders.pendingUnknown": 0}, 5, id="both know"),
        pytest.param("RUNNING", {"orders.pendingUnknown": 0}, 3, id="one has nothing to read"),
        pytest.param("RUNNING", {}, None, id="one has not said anything yet"),
        pytest.param("DEPLOYING", {}, None, id="one is being deployed"),
        pytest.param("FINISHED", {}, 3, id="one has read everything"),
    ],
)
def test_a_part_of_the_records_behind_is_not_shown_as_all(
    state: str, user: dict[str, int], behind: int | None
) -> None:
    knows = TaskMetrics(user={"orders.pendingRecords": 3, "orders.pendingUnknown": 0})
    subtasks = (
        structs.replace(reader(0, 5), metrics=knows),
        structs.replace(reader(1, 5), state=state, metrics=TaskMetrics(user=user)),
        later(5),
    )
    info = structs.replace(INFO, subtasks=subtasks, metrics=summed(subtasks, {}))
    assert info.records_behind == behind


def reader(index: int, rows: int, dead: int = 0, *, source: str = "orders") -> SubtaskInfo:
    user = {f"{source}.dead_letters": dead} if dead else {}
    metrics = TaskMetrics(records_in=rows, user=user)
    vertex = VertexId(source)
    return SubtaskInfo(
        vertex=vertex,
        vertex_name=source,
        index=index,
        attempt=0,
        state="RUNNING",
        metrics=metrics,
        source=source,
    )


def later(rows: int, **dead: int) -> SubtaskInfo:
    """A task behind the sources. `dead`: rows that failed there, by operator."""
    metrics = TaskMetrics(
        records_in=rows, user={f"{name}.dead_letters": count for name, count in dead.items()}
    )
    task = structs.replace(reader(0, rows), vertex=VertexId("sink"), vertex_name="sink", source=None)
    return structs.replace(task, metrics=metrics)


def chained(rows: int, dead: int) -> SubtaskInfo:
    """A source with an operator in its task."""
    return structs.replace(
        reader(0, rows), metrics=TaskMetrics(records_in=rows, user={"parse.dead_letters": dead})
    )


def late(rows: int) -> dict[str, int]:
    return {"per shop.numLateRecordsDropped": rows, "watermark": NOW_MS}


FAILED_EARLIER = ExceptionInfo(at_ms=NOW_MS - 59_000, kind="OSError", message="away")


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        pytest.param({"metrics": late(0)}, {}, id="nothing read yet"),
        pytest.param(
            {"metrics": late(10), "subtasks": (reader(0, 60), reader(1, 40))}, {}, id="at the ratio"
        ),
        pytest.param(
            {"metrics": late(11), "subtasks": (reader(0, 60), reader(1, 40), later(1_000))},
            {"late_ratio": "11 of 100 rows were late (11.00%), allowed 10.00%"},
            id="late, and only rows of sources count",
        ),
        pytest.param(
            {"metrics": late(0), "late_rows": {"per shop": 500}, "subtasks": (reader(0, 100),)},
            {},
            id="late before the restart",
        ),
        pytest.param({"metrics": {"watermark": NOW_MS - 60_000}}, {}, id="at the lag"),
        pytest.param(
            {"metrics": {"watermark": NOW_MS - 61_000}},
            {"lag": "the watermark is 61 s behind, allowed 60 s"},
            id="behind",
        ),
        pytest.param({"metrics": {"watermark": NOW_MS + 5_000}}, {}, id="ahead of the clock"),
        pytest.param({"metrics": {"watermark": MAX_WATERMARK}}, {}, id="all is read"),
        pytest.param(
            {"metrics": {"watermark": MIN_WATERMARK}},
            {"lag": "there is no watermark yet, 300 s after the start"},
            id="no watermark",
        ),
        pytest.param({}, {"lag": "there is no watermark yet"}, id="none reported"),
        pytest.param({"submitted_ms": NOW_MS - 60_000}, {}, id="it has just started"),
        pytest.param({"exceptions": (FAILED_EARLIER,)}, {}, id="it has just restarted"),
        pytest.param(
            {"metrics": late(0), "subtasks": (reader(0, 45, 4), reader(1, 45, 6))},
            {},
            id="at the dead letters",
        ),
        pytest.param(
            {"metrics": late(0), "subtasks": (reader(0, 89, 11), reader(0, 9_000, 1, source="flights"))},
            {"dead_letters": "source orders: 11 of 100 records could not be decoded (11.00%), allowed"},
            id="the worst source counts",
        ),
        pytest.param(
            {"metrics": late(0), "subtasks": (reader(0, 1_000), later(60, price=5), later(40, price=5))},
            {},
            id="at the dead letters of an operator",
        ),
        pytest.param(
            {"metrics": late(0), "subtasks": (reader(0, 1_000, 1), later(60, price=11), later(40))},
            {"dead_letters": "operator price: 11 of 100 rows could not be processed (11.00%), allowed"},
            id="rows that an operator could not process, of those of its tasks",
        ),
        pytest.param(
            {"metrics": late(0), "subtasks": (chained(89, 11),)},
            {"dead_letters": "operator parse: 11 of 89 rows could not be processed (12.36%), allowed"},
            id="in the task of a source",
        ),
    ],
)
def test_rows_and_time_are_judged(change: dict[str, Any], failed: dict[str, str]) -> None:
    found = judged(structs.replace(INFO, **change), None, RATIOS, NOW_MS)
    assert list(found) == RATIOS.names == ["stream_is_running", "late_ratio", "lag", "dead_letters"]
    assert {name for name, verdict in found.items() if not verdict.passed} == set(failed)
    for name, text in failed.items():
        assert text in found[name].text


def test_rows_are_counted_by_source() -> None:
    subtasks = (reader(1, 2, 3), later(50), reader(0, 5, source="flights"), reader(0, 7, 1))
    assert source_rows(structs.replace(INFO, subtasks=subtasks)) == [
        SourceRows("flights", 5, 0),
        SourceRows("orders", 9, 4),
    ]


@pytest.mark.parametrize(
    ("rows", "expected", "tolerance", "passed"),
    [
        (100, 100, 0.0, True),
        (99, 100, 0.0, False),
        (101, 100, 0.0, False),
        (99, 100, 0.01, True),
        (98, 100, 0.01, False),
        (None, 0, 0.0, True),
        (None, 1, 0.5, False),
    ],
)
def test_a_table_is_compared_with_a_query(
    rows: int | None, expected: int, tolerance: float, passed: bool
) -> None:
    verdict = row_count_verdict(rows, expected, tolerance)
    assert verdict.passed == passed
    assert verdict.metadata.get("rows") == rows, "there is none of a table that does not exist"


def test_what_has_no_limit_is_not_checked() -> None:
    limits = HealthLimits(checkpoint_age_ms=None, restarts=None, late_rows=5)
    assert limits.names == ["stream_is_running", "late_rows"]
    assert list(judged(INFO, None, limits, NOW_MS)) == limits.names


def rows_asset() -> dg.AssetsDefinition:
    def rows(): ...  # type: ignore[no-untyped-def]  # Dagster takes an annotation for that of one output

    specs = [sink_asset("rows", sink_uid="lake"), sink_asset("late", sink_uid="late")]
    return unistream_assets(specs=specs)(rows)


def test_a_job_that_does_not_run_fails_all_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    checks = build_stream_checks(rows_asset(), max_restarts=0)
    assert {(key.asset_key.to_user_string(), key.name) for key in checks.check_keys} == {
        (asset, name)
        for asset in ("rows", "late")
        for name in ("stream_is_running", "checkpoint_age", "restarts")
    }
    with dg.DagsterInstance.ephemeral() as instance:
        defs = dg.Definitions(
            assets=[rows_asset()],
            asset_checks=[checks],
            resources={"unistream": UnistreamResource(target="remote")},
            jobs=[dg.define_asset_job("check", dg.AssetSelection.checks(checks))],
        )
        result = defs.resolve_job_def("check").execute_in_process(instance=instance)
    evaluations = result.get_asset_check_evaluations()
    assert len(evaluations) == 6
    assert all(not one.passed and "the job does not run" in (one.description or "") for one in evaluations)


def test_an_age_is_a_duration() -> None:
    with pytest.raises(ConfigError, match="soon"):
        build_stream_checks(rows_asset(), max_checkpoint_age="soon")


@pytest.mark.parametrize("arguments", [{"max_late_ratio": 5}, {"max_dead_letter_ratio": -0.1}], ids=str)
def test_a_ratio_is_a_share(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(arguments))} is .* between 0 and 1"):
        build_stream_checks(rows_asset(), **arguments)


def to_lake(folder: Path, rows: int) -> Callable[[us.Environment], None]:
    def build(env: us.Environment) -> None:
        source = us.DatagenSource({"id": us.datagen.Sequential()}, rows=rows)
        numbers = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
        numbers.sink_to(us.DeltaSink(str(folder))).uid("lake")
        numbers.sink_to(us.BlackholeSink()).uid("nothing")

    return build


def count_check(check: dg.AssetChecksDefinition, assets: dg.AssetsDefinition) -> tuple[bool, str | None]:
    defs = dg.Definitions([assets], asset_checks=[check], resources={"unistream": UnistreamResource()})
    job = dg.define_asset_job("count", dg.AssetSelection.checks(check))
    resolved = dg.Definitions.merge(defs, dg.Definitions(jobs=[job])).resolve_job_def("count")
    with dg.DagsterInstance.ephemeral() as instance:
        [one] = resolved.execute_in_process(instance=instance).get_asset_check_evaluations()
    return one.passed, one.description


def test_rows_of_a_table_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    build = to_lake(tmp_path / "lake", 50)

    @unistream_assets(name="rows", specs=[sink_asset(["lake", "rows"], sink_uid="lake")])
    def assets(context: dg.AssetExecutionContext, unistream: UnistreamResource):  # type: ignore[no-untyped-def]
        yield from unistream.run(context, build)

    check = build_row_count_check(assets, build, lambda: 50)
    assert count_check(check, assets) == (
        False,
        "there is no table, the query says 50: 50 off, allowed 0",
    )
    assert dg.materialize([assets], resources={"unistream": UnistreamResource(target="local")}).success
    assert count_check(check, assets)[0]
    other = build_row_count_check(assets, build, lambda: 60, tolerance=0.1, asset="lake/rows")
    assert count_check(other, assets) == (
        False,
        "the table has 50 rows, the query says 60: 10 off, allowed 6",
    )


def test_a_sink_that_counts_no_rows_fails_the_check(tmp_path: Path) -> None:
    @unistream_assets(name="rows", specs=[sink_asset("nothing", sink_uid="nothing")])
    def assets(): ...  # type: ignore[no-untyped-def]

    check = build_row_count_check(assets, to_lake(tmp_path, 5), lambda: 5)
    with pytest.raises(dg.Failure, match="sink 'nothing' does not know the rows of its table"):
        count_check(check, assets)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "writes late, rows: say with asset= which one is counted"),
        ({"asset": "other"}, "has no asset other; it writes late, rows"),
        ({"asset": "rows", "tolerance": 2}, "tolerance is 2"),
    ],
    ids=str,
)
def test_what_is_counted_is_said(tmp_path: Path, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        build_row_count_check(rows_asset(), to_lake(tmp_path, 5), lambda: 5, **arguments)
