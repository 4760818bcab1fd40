"""What the asset decorator accepts and refuses, and what it declares."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import ConfigError
from unistream.dagster import (
    SinkTranslatorData,
    UnistreamResource,
    UnistreamTranslator,
    build_unistream_asset_specs,
    sink_asset,
    unistream_assets,
)
from unistream.dagster.run.launch_config import launched_with
from unistream.dagster.run.start import chosen_resume

DAYS = dg.DailyPartitionsDefinition("2026-01-01")
ORDERS = sink_asset("orders", sink_uid="lake", kinds={"deltalake"}, metadata={"owner": "me"})


def test_a_sink_asset_names_its_sink_and_keeps_what_was_given() -> None:
    assert ORDERS.metadata == {"owner": "me", "unistream/sink_uid": "lake"}
    assert ORDERS.kinds == {"unistream", "deltalake"}


def test_the_assets_of_one_job_are_one_step_with_a_pool_of_its_own() -> None:
    @unistream_assets(specs=[ORDERS, sink_asset("late", sink_uid="late")])
    def pipeline(context: dg.AssetExecutionContext, unistream: UnistreamResource):
        yield from unistream.run(context, lambda _env: None)

    assert pipeline.op.name == "pipeline"
    assert pipeline.op.pool == "unistream_pipeline"
    assert {key.to_user_string() for key in pipeline.keys} == {"orders", "late"}
    assert pipeline.can_subset is False


@pytest.mark.parametrize(
    ("specs", "options", "text"),
    [
        pytest.param([], {}, "at least one asset spec", id="no assets"),
        pytest.param([dg.AssetSpec("plain")], {}, "asset plain has no sink", id="an asset without a sink"),
        pytest.param(
            [ORDERS, sink_asset("again", sink_uid="lake")],
            {},
            "orders and again name the same",
            id="one sink twice",
        ),
        pytest.param([ORDERS], {"partitions_def": DAYS}, "no partitions_def", id="partitions"),
        pytest.param(
            [sink_asset("daily", sink_uid="lake", partitions_def=DAYS)],
            {},
            "no partitions_def",
            id="of a spec",
        ),
        pytest.param(
            [ORDERS], {"retry_policy": dg.RetryPolicy(max_retries=1)}, "no retry_policy", id="a retry policy"
        ),
    ],
)
def test_the_decorator_refuses(specs: list[dg.AssetSpec], options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        unistream_assets(specs=specs, **options)


def test_a_pipeline_that_ends_may_have_partitions() -> None:
    made = unistream_assets(specs=[ORDERS], name="orders", partitions_def=DAYS, bounded=True)
    assert made(lambda: None).partitions_def == DAYS


@pytest.mark.parametrize(
    ("rows", "sink", "text"),
    [
        pytest.param(
            None, us.DeltaSink("x", mode="upsert", key="id"), "needs a pipeline that ends", id="no end"
        ),
        pytest.param(5, us.DeltaSink("x"), "asset orders has partitions, and its sink", id="appends"),
        pytest.param(5, us.BlackholeSink(), "asset orders has partitions, and its sink", id="no table"),
    ],
)
def test_a_run_of_a_partition_that_could_add_rows_twice_starts_nothing(
    rows: int | None, sink: us.Sink, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def build(env: us.Environment) -> None:
        columns = {"id": us.datagen.Sequential()}
        source = us.DatagenSource(columns, rows=rows, bounded=rows is not None)
        env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").sink_to(sink).uid("lake")

    @unistream_assets(specs=[ORDERS], name="orders", partitions_def=DAYS, bounded=True)
    def orders(context: dg.AssetExecutionContext, unistream: UnistreamResource):
        yield from unistream.run(context, build)

    local = {"unistream": UnistreamResource(target="local")}
    ran = dg.materialize([orders], resources=local, partition_key="2026-01-02", raise_on_error=False)
    [failed] = [event for event in ran.all_events if event.is_step_failure]
    assert text in str(failed.step_failure_data.user_failure_data)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tags", "parent", "resource", "resume"),
    [
        pytest.param({}, None, "latest", "latest", id="what the resource says"),
        pytest.param({"unistream/resume": "/sp"}, None, "latest", "/sp", id="the tag comes first"),
        pytest.param({"unistream/resume": "none"}, None, "/sp", "none", id="and may be none"),
        pytest.param(
            {"unistream/resume": "/sp", "unistream/job_id": "1"},
            "run",
            "latest",
            "latest",
            id="copied, and used",
        ),
        pytest.param(
            {"unistream/resume": "/sp"}, "run", "latest", "/sp", id="copied from a run without a job"
        ),
        pytest.param({"unistream/job_id": "1"}, "run", "/sp", "latest", id="the resource's, and used"),
        pytest.param({"unistream/job_id": "1"}, "run", "none", "none", id="always from the beginning"),
    ],
)
def test_a_run_starts_from(tags: dict[str, str], parent: str | None, resource: str, resume: str) -> None:
    run = dg.DagsterRun("job", run_id="2", tags=tags, parent_run_id=parent, root_run_id=parent)
    assert chosen_resume(run, resource) == resume


def once(folder: Path, add: int = 0) -> Callable[[us.Environment], None]:
    """A pipeline with a function of the user."""

    def build(env: us.Environment) -> None:
        rows = env.from_collection([{"id": 1}], name="orders")
        rows.map(lambda row: {"id": row["id"] + add}, returns={"id": pa.int64()}).uid("add").sink_to(
            us.DeltaSink(str(folder / "orders"))
        ).uid("lake")

    return build


def step(build: Callable[[us.Environment], None]) -> dg.AssetsDefinition:
    @unistream_assets(build, name="orders")
    def orders(context: dg.AssetExecutionContext, unistream: UnistreamResource):
        yield from unistream.run(context, build)

    return orders


def test_assets_have_the_version_of_their_code(tmp_path: Path) -> None:
    [first], [same], [other] = (step(once(tmp_path, add)).specs for add in (1, 1, 2))
    assert first.code_version == same.code_version != other.code_version
    assert first.code_version is not None
    [named] = build_unistream_asset_specs(once(tmp_path), translator=Versioned())
    assert named.code_version == "of mine"


class Versioned(UnistreamTranslator):
    def get_asset_spec(self, data: SinkTranslatorData) -> dg.AssetSpec:
        return super().get_asset_spec(data).replace_attributes(code_version="of mine")


@pytest.mark.parametrize(
    ("launched", "text"),
    [
        pytest.param({"mode": "detached"}, "mode 'detached' needs a session cluster", id="a mode"),
        pytest.param(
            {"on_terminate": "detach"}, "on_terminate 'detach' needs a session cluster", id="how it ends"
        ),
        pytest.param({"config": {"paralelism.default": 2}}, "did you mean 'parallelism", id="an unknown key"),
    ],
)
def test_a_launch_has_settings_of_its_own(
    launched: dict[str, Any], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    ran = dg.materialize(
        [step(once(tmp_path))],
        resources={"unistream": UnistreamResource(target="local")},
        run_config={"ops": {"orders": {"config": launched}}},
        raise_on_error=False,
    )
    [failed] = [event for event in ran.all_events if event.is_step_failure]
    assert text in str(failed.step_failure_data)
    assert not (tmp_path / "orders").exists()


class Days(dg.Config):
    resume: int = 7


def test_a_step_with_a_config_of_its_own_keeps_it(tmp_path: Path) -> None:
    seen: list[tuple[int, dict[str, Any]]] = []

    @unistream_assets(once(tmp_path), name="orders")
    def orders(context: dg.AssetExecutionContext, config: Days):
        seen.append((config.resume, launched_with(context)))
        yield dg.MaterializeResult()

    assert dg.materialize([orders]).success
    assert seen == [(7, {})]
