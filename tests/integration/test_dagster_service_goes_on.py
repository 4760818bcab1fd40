"""Where a run starts, under a real daemon and a real webserver: a topic that cannot say who has written it,
snapshots that are gone, one that is chosen, the beginning, and code that has changed meanwhile.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.integration.dagster_service import OF_DAGSTER_MATRIX, Service
from tests.support.servers.kafka_tools import read_committed
from unistream.testing.devtools.kafka_tools import create_topic

pytestmark = [OF_DAGSTER_MATRIX, pytest.mark.kafka]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, kafka: str) -> Iterator[Service]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("service")
        patch.setenv("UNISTREAM_HOME", str(folder / "home"))
        with Service(folder, "dagster_streams", KAFKA=kafka) as service:
            service.start("cluster", "daemon", "webserver")
            yield service
        assert service.left() == []


def in_topic(kafka: str, topic: str) -> list[int]:
    """Rows that its readers see."""
    return sorted(json.loads(value or b"")["id"] for value in read_committed(kafka, topic, topic))


def says(service: Service, run: str, text: str) -> str:
    """The line of the run's log, or of its failure, with this in it."""
    lines = [line for line in service.log_of(run) if text in line]
    assert lines, service.log_of(run)
    return lines[0]


def remove_snapshots(service: Service, name: str) -> None:
    """Of the last job: as retention, or somebody who makes room, does it."""
    job = service.jobs(name)[-1]
    with service.cluster() as client:
        info = client.info(job.job)
    for directory in filter(None, (info.savepoint, info.latest_checkpoint)):
        shutil.rmtree(urlsplit(directory).path, ignore_errors=True)


# --- a target that does not say who has written it ----------------------------------------------------


def test_a_stream_into_a_topic_goes_on_where_it_was_stopped(service: Service, kafka: str) -> None:
    ui = service.ui
    create_topic(kafka, "topic")
    run = ui.materialize("topic")
    service.await_end(run)
    service.await_that("rows are in the topic", lambda: len(in_topic(kafka, "topic")) > 300)
    savepoint = service.stop("topic")
    before = len(in_topic(kafka, "topic"))
    again = ui.again(run)
    service.await_end(again)
    says(service, again, f"starts from {savepoint}")
    service.await_that("more rows", lambda: len(in_topic(kafka, "topic")) > before)
    service.stop("topic")
    found = in_topic(kafka, "topic")
    assert found == list(range(len(found)))


def test_a_stream_into_a_topic_whose_snapshots_are_gone_does_not_repeat_it(
    service: Service, kafka: str
) -> None:
    ui = service.ui
    create_topic(kafka, "lost_topic")
    service.await_end(ui.materialize("lost_topic"))
    service.stop("lost_topic")
    remove_snapshots(service, "lost_topic")
    before = in_topic(kafka, "lost_topic")
    refused = ui.materialize("lost_topic")
    service.await_end(refused, "FAILURE")
    assert "is gone" in says(service, refused, "resume='none'")
    assert in_topic(kafka, "lost_topic") == before
    assert len(service.jobs("lost_topic")) == 1
    over = ui.materialize("lost_topic", resume="none")
    service.await_end(over)
    service.stop("lost_topic")
    assert len(in_topic(kafka, "lost_topic")) > len(before), "on purpose, rows are there twice"


# --- what is gone, and what is chosen ------------------------------------------------------------------


@pytest.mark.parametrize("table", ["gone", "gone_appending"])
def test_where_all_snapshots_are_gone_one_sentence_says_so(service: Service, table: str) -> None:
    """Also if the table takes rows of another line of jobs: a stream does not start over unasked."""
    ui = service.ui
    service.await_end(ui.materialize(table))
    service.await_rows(table)
    service.stop(table)
    remove_snapshots(service, table)
    before = service.ids(table)
    refused = ui.materialize(table)
    service.await_end(refused, "FAILURE")
    [job] = service.jobs(table)
    assert "is gone" in says(service, refused, f"job {job.job} ({table}) was the last to write the output")
    assert not any("starts from the beginning" in line for line in service.log_of(refused))
    assert service.ids(table) == before


def test_a_run_starts_from_the_snapshot_that_its_tag_names(service: Service) -> None:
    ui = service.ui
    service.await_end(ui.materialize("chosen"))
    rows = service.await_rows("chosen")
    savepoint = service.stop("chosen")
    run = ui.materialize("chosen", resume=savepoint)
    service.await_end(run)
    says(service, run, f"starts from {savepoint}")
    says(service, run, f"this run: resume={savepoint}")
    service.await_rows("chosen", rows)
    later = service.stop("chosen")
    again = ui.again(run)
    service.await_end(again)
    says(service, again, f"starts from {later}")
    service.stop("chosen")
    service.assert_exact("chosen")


def test_the_beginning_is_for_a_new_table_and_refused_on_one_that_has_rows(service: Service) -> None:
    ui = service.ui
    first = ui.materialize("over", resume="none")
    service.await_end(first)
    says(service, first, "starts from the beginning of its sources")
    service.await_rows("over")
    savepoint = service.stop("over")
    before = service.ids("over")
    second = ui.materialize("over", resume="none")
    service.await_end(second, "FAILURE")
    assert savepoint in says(service, second, "has the output of another line of jobs")
    assert not any("starts from the beginning" in line for line in service.log_of(second))
    assert service.ids("over") == before
    assert len(service.jobs("over")) == 1, "it was refused before there was a job"
    service.assert_exact("over")


# --- code that has changed meanwhile -------------------------------------------------------------------


def kill_and_retry(service: Service, name: str, run: str) -> str:
    """The worker of an attached run dies after a deployment; Dagster's retry of it, when it has a job."""
    ui = service.ui
    (service.lake / f"{name}.version").write_text("two")
    service.worker_of(run).send_signal(signal.SIGKILL)
    service.await_end(run, "FAILURE")
    service.await_that("the retry", lambda: len(ui.runs_of(name)) == 2)
    [retry] = [one["runId"] for one in ui.runs_of(name) if one["parentRunId"] == run]
    service.await_that(
        "it has a job", lambda: any("attached to job" in line for line in service.log_of(retry))
    )
    return retry


def test_a_retry_after_a_deployment_replaces_the_job_and_never_adds_one(service: Service) -> None:
    ui = service.ui
    first = ui.materialize("retried")
    rows = service.await_rows("retried")
    retry = kill_and_retry(service, "retried", first)
    old, new = service.jobs("retried")
    says(service, retry, f"attached to job {new.job}, the new version of job {old.job}")
    assert (old.state, new.ended_ms) == ("FINISHED", None)
    service.await_that("it is tagged", lambda: ui.tags(retry).get("unistream/job_id") == new.job)
    assert "unistream/code" not in ui.tags(retry)
    service.await_rows("retried", rows)
    ui.terminate(retry)
    service.await_end(retry, "CANCELED")
    service.assert_exact("retried")


def test_a_retry_that_keeps_the_old_code_says_so(service: Service) -> None:
    ui = service.ui
    first = ui.materialize("kept", on_running="attach")
    rows = service.await_rows("kept")
    retry = kill_and_retry(service, "kept", first)
    [job] = service.jobs("kept")
    assert f"attached to job {job.job}" in says(service, retry, "the code of this run is another version")
    assert ui.tags(retry)["unistream/code"] == "other"
    service.await_rows("kept", rows)
    ui.terminate(retry)
    service.await_end(retry, "CANCELED")
    assert len(service.jobs("kept")) == 1
    service.assert_exact("kept")


def test_a_re_execution_after_a_deployment_replaces_the_job(service: Service) -> None:
    ui = service.ui
    first = ui.materialize("redeployed")
    service.await_end(first)
    rows = service.await_rows("redeployed")
    same = ui.again(first)
    service.await_end(same)
    [old] = service.jobs("redeployed")
    says(service, same, f"attached to job {old.job}, which the run that this one repeats has started")
    assert "unistream/code" not in ui.tags(same)
    (service.lake / "redeployed.version").write_text("two")
    again = ui.again(same)
    service.await_end(again)
    _, new = service.jobs("redeployed")
    says(service, again, f"attached to job {new.job}, the new version of job {old.job}")
    service.await_rows("redeployed", rows)
    service.stop("redeployed")
    service.assert_exact("redeployed")
