"""The component: what a `defs.yaml` becomes, what it may not say, and what the scaffolder writes."""

import re
import traceback
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.testing import create_defs_folder_sandbox
from deltalake import DeltaTable

import unistream as us
from unistream.dagster import SinkTranslatorData, UnistreamJobComponent, UnistreamResource
from unistream.dagster.component.scaffolder import PIPELINE

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")  # of its own loader
TYPE = "unistream.dagster.UnistreamJobComponent"


def load(folder: str, component: object = UnistreamJobComponent, **attributes: Any) -> dg.Definitions:
    """The definitions of a component next to `pipeline.py`."""
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component_cls=component, defs_path="orders")
        assert (path / "pipeline.py").read_text() == PIPELINE
        given = {"pipeline": ".pipeline:build", "arguments": {"lake": folder}, **attributes}
        kind = TYPE if component is UnistreamJobComponent else f"{__name__}.Prefixed"
        body = {"type": kind, "attributes": given}
        (path / "defs.yaml").write_text(yaml.safe_dump(body))
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, defs):
            return defs


def keys(defs: dg.Definitions) -> list[str]:
    return sorted(spec.key.to_user_string() for spec in defs.resolve_all_asset_specs())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    return str(tmp_path / "lake")


def test_what_the_scaffolder_writes_runs(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE", home)
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component_cls=UnistreamJobComponent, defs_path="orders")
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, defs):
            assert isinstance(component, UnistreamJobComponent)
            assets = defs.get_assets_def(dg.AssetKey(["lake", "orders"]))
            assert assets.op.name == "orders"
            assert assets.op.pool == "unistream_orders"
            assert [sensor.name for sensor in defs.sensors or ()] == ["orders_commits", "orders_reconciling"]
            resources = {key: value for key, value in (defs.resources or {}).items()}
            assert dg.materialize([assets], resources=resources).success
    assert DeltaTable(f"{home}/orders").to_pyarrow_table().num_rows == 500


def test_everything_around_a_stream(home: str) -> None:
    defs = load(
        home,
        name="sales",
        unistream={"target": "remote", "jobmanager": "127.0.0.1:1", "on_terminate": "drain"},
        translation={"group_name": "sales", "key_prefix": "silver", "tags": {"sink": "{{ sink.uid }}"}},
        checks={
            "max_restarts": 3,
            "max_late_ratio": 0.01,
            "max_watermark_lag": "5 min",
            "severity": {"lag": "ERROR"},
        },
        commit_sensor={"minimum_interval_seconds": 5, "default_status": "STOPPED"},
        stop_with_savepoint={
            "cron_schedule": "0 22 * * *",
            "drain": True,
            "execution_timezone": "Europe/Berlin",
            "default_status": "RUNNING",
        },
        savepoint={"cron_schedule": "0 3 * * *", "savepoint_dir": f"{home}/savepoints"},
        drain_and_resume={"cron_schedule": "0 4 * * *", "between": ".pipeline:build", "drain": False},
        row_count={"query": ".pipeline:build", "tolerance": 0.05},
        reconciling={"silent_after_s": 90},
    )
    assert keys(defs) == ["silver/lake/orders"]
    assert defs.get_assets_def(dg.AssetKey(["silver", "lake", "orders"])).op.pool == "unistream_sales"
    [spec] = defs.resolve_all_asset_specs()
    assert (spec.group_name, spec.tags["sink"]) == ("sales", "lake")
    assert sorted(schedule.name for schedule in defs.schedules or ()) == [
        *("sales_drain_schedule", "sales_savepoint_schedule", "sales_stop_and_resume_schedule"),
    ]
    assert sorted(sensor.name for sensor in defs.sensors or ()) == [
        *("sales_commits", "sales_reconciling", "sales_stop_and_resume_sensor"),
    ]
    timed = {one.name: one for one in defs.schedules or () if isinstance(one, dg.ScheduleDefinition)}
    drain, savepoint = timed["sales_drain_schedule"], timed["sales_savepoint_schedule"]
    assert (drain.execution_timezone, drain.default_status.value) == ("Europe/Berlin", "RUNNING")
    assert (savepoint.execution_timezone, savepoint.default_status.value) == (None, "STOPPED")
    [commits] = [one for one in defs.sensors or () if one.name == "sales_commits"]
    assert (commits.minimum_interval_seconds, commits.default_status.value) == (5, "STOPPED")
    [checks, rows] = defs.asset_checks or ()
    severities = {spec.name: spec.metadata.get("unistream/severity") for spec in checks.check_specs}  # type: ignore[union-attr]
    assert {name: one for name, one in severities.items() if one is not None} == {"lag": "ERROR"}
    assert [key.name for key in rows.check_keys] == ["row_count"]  # type: ignore[union-attr]
    assert {key.name for key in checks.check_keys} == {  # type: ignore[union-attr]
        *("stream_is_running", "checkpoint_age", "restarts", "late_ratio", "lag")
    }
    resource = (defs.resources or {})["unistream_sales"]
    assert isinstance(resource, UnistreamResource)
    assert (resource.target, resource.on_terminate) == ("remote", "drain")
    dg.Definitions.validate_loadable(defs)


def test_without_settings_it_takes_the_resource_of_the_project(home: str) -> None:
    defs = load(home, commit_sensor=False, reconciling=None)
    assert (defs.resources or {}) == {}
    assert not list(defs.sensors or ())
    [checks] = defs.asset_checks or ()
    assert {key.name for key in checks.check_keys} == {"stream_is_running", "checkpoint_age"}  # type: ignore[union-attr]
    [assets] = [one for one in defs.assets or () if isinstance(one, dg.AssetsDefinition)]
    assert assets.required_resource_keys - {"io_manager"} == {"unistream"}
    assert assets.op.name == "build"


class Prefixed(UnistreamJobComponent):
    def get_asset_spec(self, data: SinkTranslatorData) -> dg.AssetSpec:
        spec = super().get_asset_spec(data)
        return spec.replace_attributes(key=spec.key.with_prefix(data.sink.uid))


def test_a_subclass_names_the_assets(home: str) -> None:
    assert keys(load(home, Prefixed, unistream={"target": "local"})) == ["lake/lake/orders"]


DAILY = {"type": "daily", "start_date": "2026-01-01"}
OF_DAYS = f"{__name__}:of_days"
SEEN: list[list[str]] = []


def of_days(env: us.Environment, lake: str, partitions: list[str]) -> None:
    SEEN.append(partitions)
    rows = env.from_collection([{"day": day} for day in partitions], name="days")
    sink = us.DeltaSink(f"{lake}/days", mode="overwrite-partitions", partition_by=["day"])
    rows.sink_to(sink).uid("lake")


def test_a_pipeline_that_ends_has_the_partitions_of_its_run(home: str) -> None:
    SEEN.clear()
    policy = {"type": "single_run"}
    defs = load(home, pipeline=OF_DAYS, partitions_def=DAILY, backfill_policy=policy, unistream={})
    assets = defs.get_assets_def(dg.AssetKey(["lake", "days"]))
    assert assets.partitions_def == dg.DailyPartitionsDefinition("2026-01-01")
    assert assets.backfill_policy == dg.BackfillPolicy.single_run()
    assert all(days == ["2026-01-01"] for days in SEEN), "the first one, to describe it"
    wrong = {"unistream_of_days": UnistreamResource(target="local", mode="detached")}  # starts nothing
    dg.materialize([assets], resources=wrong, partition_key="2026-01-07", raise_on_error=False)
    assert SEEN[-1] == ["2026-01-07"]


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"pipeline": "no colon"}, "'no colon' is not MODULE:FUNCTION"),
        ({"pipeline": ".pipeline:other"}, "has no 'other'"),
        ({"pipeline": "not_there:build"}, "there is no module 'not_there'"),
        ({"arguments": {}}, r"build\(\) missing 1 required positional argument: 'lake'"),
        ({"unistream": {"targets": "local"}}, "there is no setting 'targets' of the resource"),
        ({"unistream": {"target": "local", "mode": "for ever"}}, "mode"),
        ({"unistream": {"target": "lokal"}}, "target 'lokal' is not one of spark, local, remote"),
        ({"unistream": {"target": "local", "jobmanager": "here:1"}}, "let the target be remote"),
        ({"unistream": {"target": "remote", "jobmanager": "zk"}}, "zk"),
        ({"unistream": {"config": {"paralelism.default": "2"}}}, "did you mean 'parallelism.default'"),
        ({"unistream": {"config": {"execution.checkpointing.interval": "soon"}}}, "interval: .*soon"),
        ({"arguments": {"lake": "{{ env.NO_LAKE }}"}}, "arguments.lake: .* NO_LAKE is not set"),
        ({"arguments": {"lake": "{{ env.NO_LAKE }}/orders"}}, "give a default: {{ env.'NO_LAKE'"),
        ({"unistream": {"config": {"state.backend.type": "{{ env.NO_LAKE }}"}}}, "unistream.config.state"),
        ({"checks": {"restarts": 3}}, "restarts"),
        ({"checks": {"max_dead_letter_ratio": 3}}, "max_dead_letter_ratio is 3.0, and a share is between 0"),
        (
            {"checks": {"severity": {"lagg": "ERROR"}}},
            "there is no check 'lagg'; there are",
        ),
        ({"checks": {"severity": "FATAL"}}, "severity"),
        ({"partitions_def": DAILY}, "unexpected keyword argument 'partitions'"),
        ({"schedule": "0 3 * * *"}, "schedule"),
        ({"reconciling": {"silent_after_s": 0}}, "silent_after_s and unlinked_after_s must be above 0"),
        (
            {"drain_and_resume": {"cron_schedule": "0 3 * * *", "between": ".pipeline:other"}},
            "has no 'other'",
        ),
        ({"row_count": {"query": "count"}}, "'count' is not MODULE:FUNCTION"),
    ],
    ids=str,
)
def test_a_file_that_is_wrong_is_refused(home: str, attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ComponentTreeException, match=r"defs.yaml \(UnistreamJobComponent\)") as raised:
        load(home, **attributes)
    assert re.search(reason, "".join(traceback.format_exception(raised.value)))


def test_a_variable_may_have_a_default(home: str) -> None:
    lake = f"{{{{ env.NO_LAKE or env('NO_LAKE', '{home}') }}}}"
    config = {"parallelism.default": 2, "pipeline.operator-chaining.enabled": False}
    defs = load(home, arguments={"lake": lake}, unistream={"config": config})
    assert keys(defs) == ["lake/orders"]
    assert (defs.resources or {})["unistream_build"].config == {
        "parallelism.default": "2",
        "pipeline.operator-chaining.enabled": "false",
    }


def test_settings_of_the_environment_are_known_at_the_run() -> None:
    named = {"execution.checkpointing.interval": dg.EnvVar("INTERVAL")}
    assert UnistreamResource(target=dg.EnvVar("TARGET"), jobmanager=dg.EnvVar("WHERE"), config=named)


def test_tools_of_dagster_find_the_component() -> None:
    [entry] = entry_points(group="dagster_dg_cli.registry_modules", name="unistream")
    assert entry.load().UnistreamJobComponent is UnistreamJobComponent


def test_the_file_in_the_guide_loads(home: str) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "dagster.md").read_text()
    [block] = re.findall(r"```yaml\n(type: .*?)```", guide, re.DOTALL)
    attributes = yaml.safe_load(block)["attributes"]
    defs = load(**{**attributes, "arguments": {"lake": home}, "folder": home})
    assert keys(defs) == ["silver/lake/orders"]
