"""What was submitted of a job is kept beyond its end, and started again; nothing of it stays for ever."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from msgspec import structs

from tests.unit.master.conftest import request
from tests.unit.master.served_cluster import WAIT_S, Api
from tests.unit.master.test_master_artifacts import CODE, Cluster, end, job, submit
from unistream.base.crash_points import passing
from unistream.base.errors import ConfigError, Fenced, NotFound
from unistream.base.ids import JobId, LineageId, OperatorUid, VertexId
from unistream.core.contract import SnapshotRequest
from unistream.master.cluster.changed_submission import changed
from unistream.master.store.job_store import KEPT_MAX, JobStore, place_of, replay_name, restart_name
from unistream.model.graph import JobType
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_job import ArtifactName, StoredResult
from unistream.model.submission import digest_of

A, B = JobId("a"), JobId("b")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_code_stays_until_it_is_released(cluster: Cluster) -> None:
    jobs = cluster.lead()
    submit(jobs, "a")
    kept = jobs.keep("up", A, 5)
    assert jobs.keep("up", A, 9) == kept, "the same again changes nothing"
    end(jobs, "a")
    stored, code, _ = jobs.load_kept(kept)
    assert (stored.job, code) == ("a", CODE)
    later = cluster.lead()
    later.sweep()
    found = later.kept("up")
    assert found == kept
    assert later.load_kept(found) == (stored, CODE, b"")
    later.release("up")
    later.release("up")
    assert cluster.stored() == set()
    assert later.kept("up") is None


def test_what_is_kept_twice_is_the_job_as_it_is_the_second_time(cluster: Cluster) -> None:
    jobs = cluster.lead()
    submit(jobs, "a")
    before = jobs.keep("up", A, 5)
    vertex = jobs.load(A).graph.vertices[0].id
    jobs.change(structs.replace(jobs.load(A), parallelism={vertex: 3}))
    assert jobs.load_kept(before)[0].parallelism == {}, "what is kept stays"
    after = jobs.keep("up", A, 9)
    assert (after.kept_ms, jobs.kept("up")) == (5, after)
    assert jobs.load_kept(after)[0].parallelism == {vertex: 3}
    end(jobs, "a")
    jobs.release("up")
    assert cluster.stored() == set()


def test_what_a_job_still_needs_stays_when_it_is_released(cluster: Cluster) -> None:
    jobs = cluster.lead()
    submit(jobs, "a")
    before = cluster.stored()
    jobs.keep("up", A, 5)
    jobs.release("up")
    assert cluster.stored() == before
    assert jobs.load(A).job == "a"


def test_a_job_that_has_ended_and_another_name_are_refused(cluster: Cluster) -> None:
    jobs = cluster.lead()
    for name in "ab":
        submit(jobs, name)
    jobs.keep("up", A, 5)
    with pytest.raises(ConfigError, match="job a is kept under this name already, not b"):
        jobs.keep("up", B, 6)
    end(jobs, "b")
    for gone in (B, JobId("c")):
        with pytest.raises(NotFound, match=f"there is no job {gone}"):
            jobs.keep("other", gone, 6)


def test_the_oldest_goes_when_there_are_too_many(cluster: Cluster) -> None:
    jobs = cluster.lead()
    submit(jobs, "a")
    for number in range(KEPT_MAX + 2):
        jobs.keep(f"up{number}", A, number)
    kept = [number for number in range(KEPT_MAX + 2) if jobs.kept(f"up{number}") is not None]
    assert kept == list(range(2, KEPT_MAX + 2))
    assert jobs.load(A).job == "a"


def test_what_may_be_started_again_is_not_in_the_way_of_an_upgrade(cluster: Cluster) -> None:
    jobs = cluster.lead()
    submit(jobs, "a")
    jobs.keep("up", A, 0)
    for number in range(KEPT_MAX + 2):
        jobs.keep(f"again{number}", A, number, for_restart=True)
    for number in range(KEPT_MAX - 1):
        jobs.keep(f"up{number}", A, 100)
    there = [kept.for_restart for kept in jobs.kept_of(A)]
    assert there == [False] + [True] * KEPT_MAX + [False] * (KEPT_MAX - 1)
    assert jobs.kept("again1") is None
    assert jobs.kept_of(B) == []


def ended(name: str, state: str) -> StoredResult:
    return StoredResult(
        job=JobId(name), name=name, lineage=LineageId("l"), state=state, submitted_ms=1, ended_ms=7
    )


def fail(jobs: JobStore, name: str, state: str = "FAILED") -> None:
    result = ended(name, state)
    jobs.ended(result)
    jobs.cleaned(result)


@pytest.mark.parametrize(
    ("state", "job_type", "is_kept"),
    [
        ("FAILED", JobType.STREAMING, True),
        ("FAILED", JobType.BATCH, False),
        ("FINISHED", JobType.STREAMING, False),
        ("CANCELED", JobType.STREAMING, False),
    ],
)
def test_a_stream_that_has_failed_is_kept_by_itself(
    state: str, job_type: JobType, is_kept: bool, cluster: Cluster
) -> None:
    jobs = cluster.lead()
    stored = job("a", jobs.epoch)
    jobs.add(structs.replace(stored, graph=structs.replace(stored.graph, job_type=job_type)), CODE)
    fail(jobs, "a", state)
    assert [(one.job, one.for_restart, one.kept_ms) for one in jobs.kept_of(A)] == [("a", True, 7)] * is_kept
    assert (cluster.stored() != set()) is is_kept
    later = cluster.lead()
    later.sweep()
    if is_kept:
        [kept] = later.kept_of(A)
        assert later.load_kept(kept)[1] == CODE
        later.release(restart_name(A))
    assert cluster.stored() == set()


MADE_OF = b"what it was made of"


def made(jobs: JobStore, name: str) -> None:
    pipeline = str(ArtifactName(hashlib.sha256(MADE_OF).hexdigest(), jobs.epoch))
    jobs.add(structs.replace(job(name, jobs.epoch), pipeline=pipeline), CODE, None, MADE_OF)


def test_what_a_job_was_made_of_stays_for_a_replay_of_its_letters(cluster: Cluster) -> None:
    jobs = cluster.lead()
    made(jobs, "a")
    submit(jobs, "b")
    jobs.change(structs.replace(jobs.load(A), parallelism={VertexId("v"): 3}))
    for kept, content in ((A, MADE_OF), (B, None)):
        assert (jobs.pipeline(kept), jobs.has_pipeline(kept)) == (content, content is not None)
    for name in "ab":
        end(jobs, name)
    later = cluster.lead()
    later.sweep()
    assert (later.pipeline(A), later.pipeline(B)) == (MADE_OF, None)
    assert later.kept_of(A) == [], "nobody can start it again"
    assert len(cluster.stored()) == 1, "its code is not needed"
    later.release(replay_name(A))
    assert (cluster.stored(), later.pipeline(A)) == (set(), None)


def test_a_stream_that_has_failed_starts_again_with_what_it_was_made_of(cluster: Cluster) -> None:
    jobs = cluster.lead()
    made(jobs, "a")
    fail(jobs, "a")
    [kept] = jobs.kept_of(A)
    assert jobs.load_kept(kept)[1:] == (CODE, MADE_OF)
    jobs.release(replay_name(A))
    assert jobs.load_kept(kept)[2] == MADE_OF


def test_of_too_many_that_may_be_replayed_the_oldest_goes(cluster: Cluster) -> None:
    jobs = cluster.lead()
    submit(jobs, "a")
    jobs.keep("up", A, 0)
    for number in range(KEPT_MAX + 1):
        made(jobs, f"j{number}")
        result = structs.replace(ended(f"j{number}", "FINISHED"), ended_ms=number)
        jobs.ended(result)
        jobs.cleaned(result)
    there = [jobs.has_pipeline(JobId(f"j{number}")) for number in range(KEPT_MAX + 1)]
    assert there == [False] + [True] * KEPT_MAX
    assert jobs.kept("up") is not None


def test_what_a_job_was_made_of_is_no_part_of_its_digest() -> None:
    assert digest_of(request(pipeline=MADE_OF)) == digest_of(request())


@pytest.mark.parametrize("point", ["job.kept", "job.unpointed"])
def test_a_leader_that_dies_while_it_cleans_up_after_a_failure_is_followed(
    point: str, cluster: Cluster
) -> None:
    """The next one does all of it again: it is kept once, and nothing else stays."""
    first = cluster.lead()
    submit(first, "a")
    result = ended("a", "FAILED")
    first.ended(result)

    def die(passed: str) -> None:
        if passed == point:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"), passing(die):
        first.cleaned(result)
    later = cluster.lead()
    later.cleaned(result)
    later.cleaned(result)
    later.sweep()
    [kept] = later.kept_of(A)
    assert later.load_kept(kept)[1] == CODE
    assert later.pointer(A) is None
    later.release(restart_name(A))
    assert cluster.stored() == set()


def test_what_cannot_be_read_is_not_kept_and_goes(cluster: Cluster) -> None:
    jobs = cluster.lead()
    submit(jobs, "a")
    for path in cluster.artifacts.iterdir():
        path.write_bytes(b"damaged")
    fail(jobs, "a")
    assert jobs.kept_of(A) == []
    assert jobs.pointer(A) is None


def test_a_failed_stream_that_the_web_ui_had_kept_stays_as_it_was(cluster: Cluster) -> None:
    jobs = cluster.lead()
    submit(jobs, "a")
    before = jobs.keep(restart_name(A), A, 5, for_restart=True)
    fail(jobs, "a")
    assert jobs.kept_of(A) == [before]


def test_the_name_is_that_of_the_web_ui() -> None:
    source = (Path(__file__).parents[3] / "ui" / "src" / "api" / "actions.ts").read_text()
    assert "`restart ${job}`" in source
    assert restart_name(A) == place_of("restart a")


def test_a_leader_that_was_deposed_keeps_nothing(cluster: Cluster) -> None:
    first = cluster.lead()
    submit(first, "a")
    second = cluster.lead()
    with pytest.raises(Fenced):
        first.keep("up", A, 5)
    assert second.kept("up") is None
    second.keep("up", A, 5)
    with pytest.raises(Fenced):
        first.release("up")
    end(second, "a")
    first.sweep()
    kept = second.kept("up")
    assert kept is not None
    assert second.load_kept(kept)[1] == CODE


def test_over_rest(api: Api) -> None:
    job = str(api.cluster.dispatcher.submit(request()))
    path = "/v1/unistream/kept-jobs/dagster%205f0c%20orders"
    assert api.http.get(path).status_code == 404
    of_job = f"/unistream/kept-jobs?job={job}"
    assert api.get(of_job) == {"kept": []}
    put = api.http.put(path, json={"job": job, "forRestart": True})
    assert (put.status_code, put.json()["job"], put.json()["forRestart"]) == (200, job, True)
    assert api.get(of_job) == {"kept": [put.json()]}
    assert api.http.get("/unistream/kept-jobs?job=x").status_code == 400
    assert api.http.get(path).json() == put.json()
    answer = api.http.post(f"{path}/start", json={"savepointPath": "/not/there", "requestId": "again"})
    assert answer.status_code == 400
    assert "/not/there" in answer.json()["errors"][0]
    assert api.http.put(path, json={"job": "f" * 32}).status_code == 400
    assert api.http.put(path.replace("5f0c", "x"), json={"job": "f" * 32}).status_code == 404
    assert api.http.put(path, json={"jobs": job}).status_code == 400
    assert api.http.put("/v1/unistream/kept-jobs/" + "n" * 201, json={"job": job}).status_code == 400
    assert api.http.delete(path).status_code == 200
    assert api.http.get(path).status_code == 404
    info = api.cluster.dispatcher.job(JobId(job))
    assert len(info.digest) == 64


def test_the_digest_is_of_all_that_is_submitted_and_of_nothing_else() -> None:
    base = request()
    same = structs.replace(base, savepoint="/s", request_id="r", allow_non_restored=True)
    assert digest_of(same) == digest_of(base)
    first, *rest = base.graph.vertices
    moved = tuple(structs.replace(one, declared_at="/other/p.py:7") for one in first.operators)
    known = structs.replace(base.graph, reads={OperatorUid("rows"): ("kafka://b/t",)})
    assert digest_of(structs.replace(base, graph=known)) == digest_of(base), "an older version did not say it"
    vertices = (structs.replace(first, operators=moved), *rest)
    assert digest_of(
        structs.replace(base, graph=structs.replace(base.graph, vertices=vertices))
    ) == digest_of(base), "the program stands elsewhere"
    others = [
        structs.replace(base, artifact=b"other"),
        structs.replace(base, config={"parallelism.default": "2"}),
        structs.replace(base, graph=structs.replace(base.graph, name="other")),
    ]
    assert len({digest_of(one) for one in (base, *others)}) == 4


INTERVAL = "execution.checkpointing.interval"


@pytest.mark.parametrize(
    ("config", "parallelism", "why"),
    [
        pytest.param({"parallelism.default": "3"}, {}, "cannot be changed without a new", id="graph"),
        pytest.param({"rest.port": "3"}, {}, "cannot be changed without a new", id="of the cluster"),
        pytest.param({INTERVAL: "soon"}, {}, "'soon'", id="no duration"),
        pytest.param({"restart-strategy.typ": "none"}, {}, "restart-strategy.type", id="no such option"),
        pytest.param({INTERVAL: "****"}, {}, "is hidden here", id="a secret that is not shown"),
        pytest.param({}, {"x": 3}, "no vertex 'x'", id="no such vertex"),
        pytest.param({}, {"source": 129}, "give a number from 1 to 128", id="too many subtasks"),
        pytest.param({}, {"source": 0}, "give a number from 1 to 128", id="none at all"),
    ],
)
def test_what_cannot_be_changed_is_refused_before_anything_is_stopped(
    api: Api, config: dict[str, str], parallelism: dict[str, int], why: str
) -> None:
    job = str(api.cluster.dispatcher.submit(request()))
    path = "/unistream/kept-jobs/up"
    api.http.put(path, json={"job": job})
    changes = {"config": config, "parallelism": parallelism}
    start = {"savepointPath": "/not/there", "requestId": "new", **changes}
    for answer in api.http.post(f"{path}/check", json=changes), api.http.post(f"{path}/start", json=start):
        assert (answer.status_code, why in answer.json()["errors"][0]) == (400, True), answer.text


def test_a_new_job_has_what_was_changed_and_all_else_of_the_old_one() -> None:
    old = structs.replace(request(config={"execution.checkpointing.mode": "EXACTLY_ONCE"}), given={"a": "b"})
    new = changed(old, {INTERVAL: "7 s"}, {"source": 3})
    assert [vertex.parallelism for vertex in new.graph.vertices] == [3, 2]
    assert new.config == {**old.config, INTERVAL: "7 s"}
    assert new.graph.config == {**old.graph.config, INTERVAL: "7 s"}
    assert new.given == {"a": "b", INTERVAL: "7 s"}, "a further version keeps it"
    assert new.artifact == old.artifact
    assert changed(old, {}, {}) == old


def test_a_job_is_started_again_with_what_was_changed(api: Api, checkpointed: dict[str, str]) -> None:
    dispatcher = api.cluster.dispatcher
    job = dispatcher.submit(request(config=checkpointed))
    path = "/unistream/kept-jobs/up"
    assert api.http.put(path, json={"job": str(job), "forRestart": True}).status_code == 200
    changes = {"config": {INTERVAL: "7 s"}, "parallelism": {"source": 1}}
    assert api.http.post(f"{path}/check", json=changes).json() == {}
    assert dispatcher.wait_for(job, lambda info: info.all_tasks_run, WAIT_S)
    saved = dispatcher.snapshot(job, SnapshotRequest(kind=SnapshotKind.SAVEPOINT)).result(WAIT_S)
    body = {"savepointPath": saved, "requestId": "new", **changes}
    answers = [api.http.post(f"{path}/start", json=body).json() for _ in range(2)]
    assert answers[0] == answers[1], "told twice it is one job"
    new = JobId(answers[0]["jobid"])
    graph = dispatcher.graph(new)
    assert [vertex.parallelism for vertex in graph.vertices] == [1, 2]
    assert graph.config[INTERVAL] == "7 s"
