"""The state of a job's snapshots over HTTP: what they hold, rows by SQL, and nothing that is no job's."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.base.ids import CheckpointId, ClusterId, JobId, LeaderEpoch, LineageId
from unistream.model.checkpoint_figures import CheckpointFigures, SnapshotStatus
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.metadata import JobRecord
from unistream.rest.savepoints import AT_ONCE_MAX, PLACES

QUERY = "/unistream/savepoints/query"
UNKNOWN = "0" * 32


@pytest.fixture
def saved(api: Api, submission: Callable[..., Any], tmp_path: Path) -> tuple[str, int]:
    """A job that runs, and a savepoint of it with rows."""
    job = api.cluster.dispatcher.submit(submission())
    assert api.cluster.dispatcher.wait_for(job, lambda info: info.all_tasks_run, WAIT_S)
    body = {"target-directory": str(tmp_path / "sp")}
    assert api.http.post(f"/jobs/{job}/savepoints", json=body).status_code == 202
    info = api.cluster.dispatcher.wait_for(job, lambda info: info.savepoint is not None, WAIT_S)
    path = Path(info.savepoint.removeprefix("file://"))
    rows = pa.table({"user": ["ann", "bob"], "value": [3, 5]})
    writer = us.SavepointWriter.change(us.read_savepoint(path))  # scripted workers have no state
    writer.with_state("counts", "last-seen", rows, keys=["user"])
    writer.with_rows("numbers", "all", {"value": [1, 2]}).write(tmp_path / "changed")
    shutil.rmtree(path)
    (tmp_path / "changed").rename(path)
    return str(job), next(one.checkpoint_id for one in info.checkpoints if one.path == info.savepoint)


def refused(api: Api, body: Any, **more: Any) -> tuple[int, str]:
    answer = api.http.post(QUERY, json=body, **more)
    assert answer.status_code >= 400, answer.text
    return answer.status_code, answer.json()["errors"][0]


def test_the_contents_are_those_of_the_manifest(api: Api, saved: tuple[str, int]) -> None:
    job, checkpoint = saved
    found = api.get(f"/v1/unistream/jobs/{job}/state")
    assert found == api.get(f"/unistream/jobs/{job}/state?checkpoint={checkpoint}")
    assert (found["kind"], found["no_query"], found["savepoint_format"]) == ("savepoint", None, "canonical")
    states = {operator["uid"]: operator["states"] for operator in found["operators"]}
    [counts], [numbers] = states["counts"], states["numbers"]
    assert (counts["kind"], counts["rows"], counts["table"]) == ("value", 2, '"counts/last-seen"')
    assert counts["keys"] == ["user"]
    assert [(c["name"], c["type"]) for c in counts["columns"]][1:] == [("user", "string"), ("value", "int64")]
    assert (numbers["kind"], numbers["columns"], numbers["table"]) == ("list-split", None, '"numbers/all"')


def test_a_query_tells_rows_or_where_it_is_wrong(api: Api, saved: tuple[str, int]) -> None:
    job, checkpoint = saved
    sql = 'SELECT "user", value FROM "counts/last-seen" ORDER BY value DESC'
    answer = api.http.post(f"/v1{QUERY}", json={"job": job, "sql": sql, "checkpointId": checkpoint})
    assert answer.status_code == 200, answer.text
    result = answer.json()["result"]
    assert result["rows"] == [["bob", "5"], ["ann", "3"]]
    assert [(c["name"], c["type"]) for c in result["columns"]] == [("user", "VARCHAR"), ("value", "BIGINT")]
    assert (result["more"], result["cut"]) == (False, 0)
    status, why = refused(api, {"job": job, "sql": "SELECT *\nFROM read_text('/etc/passwd')"})
    assert status == 400
    assert why.startswith("line 2, column 6: the table function read_text is not allowed here; the tables")


def test_another_page_of_the_browser_cannot_ask_nor_can_many_at_once(
    api: Api, saved: tuple[str, int]
) -> None:
    content = f'{{"job": "{saved[0]}", "sql": "SELECT 1"}}'
    json = {"Content-Type": "application/json"}
    with ExitStack() as busy:
        for _ in range(AT_ONCE_MAX):
            busy.enter_context(PLACES)
        answer = api.http.post(QUERY, content=content, headers=json)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    for headers in ({"Content-Type": "text/plain"}, json | {"Host": "evil.example"}):
        assert api.http.post(QUERY, content=content, headers=headers).status_code in {400, 403}


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        ({"sql": "SELECT 1", "job": UNKNOWN}, 404, "there is no job"),
        ({"sql": "SELECT 1", "job": "../../etc"}, 400, "is not a job id"),
        ({"sql": "SELECT 1", "job": UNKNOWN, "path": "/etc"}, 400, "unknown field `path`"),
        ({"sql": "SELECT 1", "job": UNKNOWN, "checkpointId": "../x"}, 400, "Expected `int | null`"),
        ({"sql": "SELECT 1"}, 400, "missing required field `job`"),
        ({"job": UNKNOWN}, 400, "missing required field `sql`"),
        ([], 400, "Expected `object`"),
    ],
)
def test_no_snapshot_is_named_by_anything_else(api: Api, body: Any, status: int, why: str) -> None:
    found, said = refused(api, body)
    assert (found, why in said) == (status, True), said


def test_a_snapshot_that_is_not_kept_is_named(api: Api, saved: tuple[str, int], tmp_path: Path) -> None:
    job, checkpoint = saved
    [path] = (tmp_path / "sp").iterdir()
    shutil.rmtree(path)
    rows = pa.table({"k": [1], "value": [1]})
    us.SavepointWriter().with_state("op", "s", rows, keys=["k"]).write(path)  # not of this job
    for query, what in {
        "?checkpoint=7000": "checkpoint 7000",
        f"?checkpoint={checkpoint}": f"checkpoint {checkpoint}",
        "": "complete checkpoint or savepoint",
    }.items():
        answer = api.http.get(f"/unistream/jobs/{job}/state{query}")
        assert (answer.status_code, f"has no {what} that is still kept" in answer.text) == (404, True)
    for number in ("-1", "x", "../1", "1.5", ""):
        answer = api.http.get(f"/unistream/jobs/{job}/state", params={"checkpoint": number})
        assert (answer.status_code, "is not a whole number" in answer.text) == (400, True)


def test_a_job_of_another_cluster_is_not_read(api: Api, tmp_path: Path) -> None:
    """Its row in the common database may name any path."""
    store, epoch, job = api.cluster.store(), LeaderEpoch(1), JobId("b" * 32)
    rows = pa.table({"k": [1], "value": [1]})
    path = us.SavepointWriter().with_state("op", "s", rows, keys=["k"]).write(tmp_path / "other")
    store.act_for(ClusterId("c" * 32))
    store.add_job(
        JobRecord(
            job=job,
            name="other",
            lineage=LineageId("l"),
            state="FINISHED",
            target="local",
            submitted_ms=1,
            ended_ms=2,
            cluster=ClusterId("c" * 32),
        ),
        epoch,
    )
    figures = CheckpointFigures(
        checkpoint_id=CheckpointId(1),
        kind=SnapshotKind.SAVEPOINT,
        status=SnapshotStatus.COMPLETED,
        timestamp_ms=1,
        duration_ms=1,
        path=path,
    )
    store.record_checkpoint(job, figures, epoch)
    store.close()
    for answer in (
        api.http.get(f"/unistream/jobs/{job}/state"),
        api.http.post(QUERY, json={"job": job, "sql": "SELECT 1"}),
    ):
        assert (answer.status_code, "is of another cluster" in answer.text) == (404, True)


def test_queries_can_be_turned_off(make_cluster: Callable[..., Any], submission: Callable[..., Any]) -> None:
    off = {"web.savepoint-query.enable": "false"}
    api = Api(make_cluster(workers=ScriptedWorkers(ends=False), config=off))
    job = api.cluster.dispatcher.submit(submission())
    assert api.cluster.dispatcher.wait_for(job, lambda info: info.all_tasks_run, WAIT_S)
    assert api.http.post(f"/jobs/{job}/savepoints", json={}).status_code == 202
    assert api.cluster.dispatcher.wait_for(job, lambda info: info.savepoint is not None, WAIT_S)
    assert "web.savepoint-query.enable" in api.get(f"/unistream/jobs/{job}/state")["no_query"]
    status, why = refused(api, {"job": str(job), "sql": "SELECT 1"})
    assert (status, "turned off" in why) == (400, True)
    api.close()
