"""What the checks of a stream say of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from msgspec import structs

from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, JobId, LineageId
from unistream.dagster import UnistreamResource, build_stream_checks, sink_asset, unistream_assets
from unistream.dagster.checks import Limits, judged
from unistream.master.job_info import JobInfo
from unistream.model.checkpoint_figures import CheckpointFigures, SnapshotStatus
from unistream.model.elements import SnapshotKind

NOW_MS = 1_000_000
INFO = JobInfo(
    job=JobId("a" * 32),
    name="rows",
    lineage=LineageId("l"),
    state="RUNNING",
    target="local",
    submitted_ms=NOW_MS - 300_000,
)
ALL = Limits(checkpoint_age_ms=60_000, restarts=2, late_rows=10)


def checkpoint(age_ms: int) -> CheckpointFigures:
    return CheckpointFigures(
        checkpoint_id=CheckpointId(7),
        kind=SnapshotKind.CHECKPOINT,
        status=SnapshotStatus.COMPLETED,
        timestamp_ms=NOW_MS - age_ms,
        duration_ms=5,
    )


@pytest.mark.parametrize(
    ("change", "age_ms", "failed"),
    [
        pytest.param({}, 5_000, {}, id="healthy"),
        pytest.param({"state": "RESTARTING"}, 5_000, {"runs": "is RESTARTING"}, id="it restarts"),
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


def test_what_has_no_limit_is_not_checked() -> None:
    limits = Limits(checkpoint_age_ms=None, restarts=None, late_rows=5)
    assert limits.names == ["runs", "late_rows"]
    assert list(judged(INFO, None, limits, NOW_MS)) == limits.names


def rows_asset() -> dg.AssetsDefinition:
    def rows(): ...  # type: ignore[no-untyped-def]  # Dagster takes an annotation for that of one output

    specs = [sink_asset("rows", sink_uid="lake"), sink_asset("late", sink_uid="late")]
    return unistream_assets(specs=specs)(rows)


def test_a_job_that_does_not_run_fails_all_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    checks = build_stream_checks(rows_asset(), max_restarts=0)
    assert {(key.asset_key.to_user_string(), key.name) for key in checks.check_keys} == {
        (asset, name) for asset in ("rows", "late") for name in ("runs", "checkpoint_age", "restarts")
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
