"""A run whose stream was stopped in order: nothing has failed, and it is CANCELED."""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run_iterator

from unistream.dagster import sink_asset, unistream_assets
from unistream.dagster.run.ending import has_hook, stopped

SAID = "job a was stopped with savepoint /1"


@pytest.mark.parametrize("stops", [True, False], ids=["it is stopped", "it goes to its end"])
def test_a_step_that_has_stopped_its_stream_has_not_failed(stops: bool) -> None:
    begun: list[str] = []

    @unistream_assets(specs=[sink_asset("stream", sink_uid="lake")], name="stream")
    def stream(context: dg.AssetExecutionContext):
        assert has_hook(context)
        if stops:
            context.instance.report_run_canceling(context.run)
            stopped(context.run.run_id, SAID)
        yield dg.MaterializeResult("stream")

    @dg.asset(deps=["stream"])
    def below() -> None:
        begun.append("below")

    job = dg.define_asset_job("all", "*", executor_def=dg.in_process_executor)
    defs = dg.Definitions([stream, below], jobs=[job]).resolve_job_def("all")
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.create_run_for_job(defs)
        events = list(execute_run_iterator(InMemoryJob(defs), run, instance))
        ended = instance.get_run_by_id(run.run_id)
    assert not any(event.is_step_failure for event in events)
    assert [event.step_key for event in events if event.is_step_success] == ["stream", "below"][: 2 - stops]
    assert begun == ["below"][: 1 - stops], "nothing begins behind it"
    assert ended is not None
    assert ended.status is (dg.DagsterRunStatus.CANCELED if stops else dg.DagsterRunStatus.SUCCESS)
    canceled = [event for event in events if event.event_type is dg.DagsterEventType.RUN_CANCELED]
    assert [SAID in event.event_specific_data.error.message for event in canceled] == [True] * stops  # type: ignore[union-attr]
