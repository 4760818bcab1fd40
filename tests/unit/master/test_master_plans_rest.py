"""Pipelines that the cluster plans and starts over HTTP: what runs is what was shown, to who has asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.eventually import WAIT_S, eventually
from tests.unit.master.conftest import request
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from tests.unit.master.test_master_canaries import hold_state
from unistream.base.errors import NotFound
from unistream.core.contract import SnapshotRequest
from unistream.model import messages as msg
from unistream.model.access import Scope
from unistream.model.snapshot_kind import SnapshotKind
from unistream.rest.plans import AT_ONCE_MAX, KEPT_MAX, LASTS_MS, PLACES, KeptPlans

PIPELINES = "tests.unit.planning.pipelines"


@pytest.fixture
def api(make_cluster: Callable[..., Any]) -> Iterator[Api]:
    made = Api(make_cluster(workers=ScriptedWorkers(ends=False), config={"parallelism.default": "2"}))
    yield made
    made.close()


def plan(api: Api, function: str, token: str | None = None, **more: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    body = {"entryPoint": f"{PIPELINES}:{function}"} | more
    return api.http.post("/unistream/plans", json=body, headers=headers, timeout=WAIT_S)


def start(api: Api, id_: str, token: str | None = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return api.http.post(f"/unistream/plans/{id_}/start", headers=headers)


def test_what_was_planned_is_started_once(api: Api) -> None:
    shown = plan(api, "counts", parameters={"limit": 3}, name="mine").json()
    assert (shown["name"], shown["states"]) == ("mine", None)
    assert api.cluster.dispatcher.jobs() == []
    started = start(api, shown["id"])
    assert started.status_code == 202
    assert start(api, shown["id"]).json() == started.json()
    [job] = api.cluster.dispatcher.jobs()
    assert (job.job, job.name) == (started.json()["jobid"], "mine")
    deployed = api.cluster.workers.await_message(msg.DeployTask).deployment
    assert deployed.vertex.parallelism == 2, "the default of the cluster"


def test_the_states_of_a_savepoint_decide_whether_it_can_be_started(api: Api) -> None:
    hold_state(api.cluster.workers, b"state")
    job = api.cluster.dispatcher.submit(request())
    eventually(lambda: api.cluster.dispatcher.job(job).state == "RUNNING", "the job is RUNNING", WAIT_S)
    taken = api.cluster.dispatcher.snapshot(job, SnapshotRequest(kind=SnapshotKind.SAVEPOINT))
    savepoint = taken.result(WAIT_S)
    answer = plan(api, "without_states", savepoint=savepoint)
    assert answer.status_code == 201, answer.text
    refused = answer.json()
    assert (refused["id"], refused["states"]["refused"]) == (None, True)
    assert {one["uid"] for one in refused["states"]["operators"]} >= {"source", "sink"}
    dropped = plan(api, "without_states", savepoint=savepoint, allowNonRestored=True).json()
    assert (dropped["states"]["refused"], dropped["id"] is None) == (False, False)
    assert start(api, dropped["id"]).status_code == 202


def test_an_error_of_the_users_code_comes_with_its_frames(api: Api) -> None:
    answer = plan(api, "raises")
    why, frames = answer.json()["errors"]
    assert (answer.status_code, "no such lake" in why) == (400, True)
    assert "_deeper()" in frames
    assert "unistream/rest" not in frames


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"entryPoint": ""}, "1 to 500 characters"),
        ({"entryPoint": "a" * 501}, "1 to 500 characters"),
        ({"savepoint": "relative"}, "give an absolute path or a URL"),
        ({"savepoint": "latest"}, "give an absolute path or a URL"),
        ({"parallelism": "2"}, "the body does not fit"),
        ({"parameters": [1]}, "the body does not fit"),
        ({"artifact": "x"}, "the body does not fit"),
    ],
)
def test_what_is_wrong_is_refused_before_any_process_starts(api: Api, body: dict[str, Any], why: str) -> None:
    answer = plan(api, "counts", **body)
    assert (answer.status_code, why in answer.json()["errors"][0]) == (400, True), answer.text


def test_only_who_has_asked_for_a_plan_starts_it_and_only_submitters_ask(api: Api) -> None:
    mine, other = (api.access.issue(name, Scope.SUBMIT, None).text for name in ("mine", "other"))
    operator = api.access.issue("ops", Scope.OPERATE, None).text
    assert plan(api, "counts", operator).status_code == 403
    id_ = plan(api, "counts", mine).json()["id"]
    assert start(api, id_, operator).status_code == 403
    for token in (other, None):
        answer = start(api, id_, token)
        assert (answer.status_code, "plan the pipeline again" in answer.text) == (404, True)
    assert start(api, id_, mine).status_code == 202


def test_a_pipeline_may_not_name_a_place_that_its_submitter_may_not(api: Api) -> None:
    token = api.access.issue("team", Scope.SUBMIT, None).text
    for more in ({"savepoint": "/etc"}, {"config": {"execution.checkpointing.dir": "/etc"}}):
        assert "may name" in plan(api, "counts", token, **more).text
    answer = plan(api, "checkpoints_in_etc", token)
    assert (answer.status_code, "may name" in answer.text) == (403, True)
    assert plan(api, "checkpoints_in_etc").status_code == 201, "an admin may"


def test_what_the_cluster_would_refuse_at_the_start_is_refused_by_the_plan(api: Api) -> None:
    answer = plan(api, "counts", config={"s3.endpoint": "http://127.0.0.1:9"})
    assert (answer.status_code, "for the cluster, whose masters" in answer.text) == (400, True), answer.text


def test_only_so_many_are_planned_at_once(api: Api) -> None:
    for _ in range(AT_ONCE_MAX):
        assert PLACES.acquire(blocking=False)
    try:
        answer = plan(api, "counts")
    finally:
        for _ in range(AT_ONCE_MAX):
            PLACES.release()
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


def test_it_can_be_turned_off(make_cluster: Callable[..., Any]) -> None:
    api = Api(make_cluster(config={"web.submit.enable": "false"}))
    try:
        assert api.get("/unistream/plans")["enabled"] is False
        for answer in (plan(api, "counts"), start(api, "a" * 32)):
            assert (answer.status_code, "web.submit.enable" in answer.text) == (403, True)
        assert api.get("/config")["features"]["web-submit"] is False
        assert api.http.get("/jars").status_code == 404
    finally:
        api.close()


def test_the_page_is_told_from_where_modules_come(api: Api) -> None:
    found = api.get("/unistream/plans")
    assert (found["enabled"], found["folder"]) == (True, str(Path.cwd()))
    assert api.http.get("/jars").status_code == 404


def test_plans_are_kept_for_a_time_and_the_newest_of_many() -> None:
    now = [0]
    kept = KeptPlans(lambda: now[0])
    for number in range(KEPT_MAX + 1):
        assert kept.add(str(number), b"it", "token") == LASTS_MS
    assert kept.get("1", "token") == b"it"
    with pytest.raises(NotFound):
        kept.get("0", "token")
    now[0] = LASTS_MS
    with pytest.raises(NotFound, match="kept for 30 minutes"):
        kept.get("1", "token")
