"""`unistream backfill` on a real stream: one range of its table is computed again from the history."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.integration.backfilled import ALL, FIRST, KEYS, NAME, OPTIONS, RANGE, Place, killing, truth
from tests.integration.crash_runs import OF_COMMANDS, in_the_gate, points_in_code
from tests.integration.session_jobs import procedures
from unistream.backfill.journal import JobLock
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.remote.rest_client import RestClient
from unistream.model.procedures import ProcedureState

pytestmark = [pytest.mark.kafka]

STEPS = 6  # stopped, fenced, attempted, staged, replaced, resumed
POINTS = [
    *(f"backfill.done:{step}" for step in range(1, STEPS + 1)),
    *(f"backfill.recorded:{step}" for step in range(1, STEPS + 1)),
    "backfill.before_replace",
    "backfill.replaced",
]


@pytest.fixture
def place(tmp_path: Path, kafka: str, topic: str) -> Iterator[Place]:
    made = Place(tmp_path, kafka, topic)
    yield made
    for process in made.terminal.processes():
        process.kill()


@pytest.fixture
def session(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    """The stream runs on a session cluster and has finished its first windows."""
    monkeypatch.setenv("UNISTREAM_HOME", str(place.folder / "home"))
    often = Configuration({"heartbeat.interval": "200 ms"})
    with EmbeddedCluster("local", often, workdir=place.folder / "cluster") as cluster:
        place.send(0, FIRST)
        place.start("remote")
        place.assert_exact(FIRST, backfilled=False)
        yield cluster


def other_rows() -> pa.Table:
    """Of another writer, in the range."""
    at = pa.array([RANGE[0] * 1000], pa.timestamp("us", "UTC"))
    return pa.table({"key": [1], "window_start": at, "window_end": at, "n": [-1], "total": [-1]})


def test_a_range_is_replaced_and_the_stream_goes_on(place: Place, session: EmbeddedCluster) -> None:
    version = place.table().version()
    plan = place.backfill("--dry-run")
    assert (plan["rows"], plan["column"], plan["job_name"]) == (2 * KEYS, "window_start", NAME)
    assert plan["history"] == {"rows": ["1970-01-01T00:16:40Z", "1970-01-01T00:18:39.980Z"]}
    assert (plan["reads_from"], plan["reads_to"]) == ("1970-01-01T00:16:40Z", "1970-01-01T00:17:20Z")
    assert place.table().version() == version, "a dry run changes nothing"
    [before] = place.jobs()
    assert before["state"] == "RUNNING"

    done = place.backfill()
    assert done["verdict"] == "replaced"
    assert (done["rows_removed"], done["rows_added"]) == (2 * KEYS, 2 * KEYS)
    assert (done["version"], done["rows_outside"]) == (done["fence_version"] + 1, 2 * KEYS)
    place.send(FIRST, ALL)
    place.assert_exact(ALL)
    [after] = place.jobs()
    assert (after["job"], after["name"], after["state"]) == (done["job"], NAME, "RUNNING")
    assert not list((place.folder / "lake" / "_unistream_backfill").glob("*")), "staged files are removed"
    with RestClient(session.rest_url) as cluster:
        [reported] = procedures(cluster)
    assert (reported.state, reported.job) == (ProcedureState.DONE, before["job"])
    assert reported.done == len(reported.steps)


def test_every_named_place_of_the_command_kills() -> None:
    assert {point.partition(":")[0] for point in POINTS} == set(points_in_code(OF_COMMANDS))


def test_killed_at_each_step_the_same_command_goes_on(place: Place, session: EmbeddedCluster) -> None:
    for point in in_the_gate(POINTS, POINTS.index("backfill.recorded:4"), -2, -1):
        write_deltalake(place.folder / "lake", other_rows(), mode="append")  # the table is wrong again
        marks = place.folder / f"killed-{point.replace(':', '-')}"
        killed = place.backfill(code=None, **killing(marks, point))
        assert [one.name for one in marks.iterdir()] == [point.partition(":")[0]], point
        assert killed.returncode == -signal.SIGKILL, point
        if point == "backfill.recorded:6":
            continue  # it had ended
        done = place.backfill()
        assert done["verdict"] == "replaced", point
        assert place.found() == sorted(truth(FIRST, backfilled=True)), point
        [job] = place.jobs()
        assert (job["job"], job["name"]) == (done["job"], NAME), point
    place.send(FIRST, ALL)
    place.assert_exact(ALL)


def test_a_change_by_somebody_else_is_kept_and_the_stream_resumes(
    place: Place, session: EmbeddedCluster
) -> None:
    place.backfill(code=None, **killing(place.folder / "killed", "backfill.recorded:4"))
    assert place.jobs() == []
    write_deltalake(place.folder / "lake", other_rows(), mode="append")
    refused = place.backfill(code=1)
    assert (refused["verdict"], refused["rows_added"], refused["rows_removed"]) == ("refused", 0, 0)
    assert "somebody else changed rows of the range" in refused["reason"]
    [job] = place.jobs()
    assert job["job"] == refused["job"]
    place.send(FIRST, ALL)
    wanted = truth(ALL, backfilled=False) | {(RANGE[0], 1, -1, -1)}
    place.until_rows(len(wanted))
    assert place.found() == sorted(wanted)


@pytest.mark.parametrize("step", in_the_gate([1, 3, 4, 5], 1, 3))
def test_one_that_is_given_up_resumes_the_stream(place: Place, session: EmbeddedCluster, step: int) -> None:
    place.backfill(code=None, **killing(place.folder / "killed", f"backfill.recorded:{step}"))
    assert place.jobs() == []
    replaced = step == STEPS - 1
    done = place.backfill("--abort")
    assert done["verdict"] == ("replaced" if replaced else "aborted")
    place.send(FIRST, ALL)
    place.assert_exact(ALL, backfilled=replaced)
    place.backfill("--abort", code=2)


def test_what_cannot_be_done_is_refused_while_the_stream_runs(place: Place, session: EmbeddedCluster) -> None:
    refusals = {
        ("--to", "1970-01-01T00:17:40Z"): "--to must be at most 1970-01-01T00:17:30Z",
        ("--from", "1970-01-01T00:16:30Z"): "begins at 1970-01-01T00:16:40Z, after --from",
        ("--column", "n"): "neither the start nor the end of the windows",
        ("--sink", "nothing"): "none of the sinks that can be replaced: 'lake'",
    }
    for words, text in refusals.items():
        refused = place.backfill(*words, code=2)
        assert text in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    with JobLock(place.folder / "home" / "backfills", NAME):
        refused = place.backfill(code=2)
    assert "another process works on a backfill of job 'flights'" in refused.stderr
    [job] = place.jobs()
    assert job["state"] == "RUNNING"


def test_a_pipeline_that_is_not_the_job_s_is_refused_while_the_stream_runs(
    place: Place, session: EmbeddedCluster
) -> None:
    """The job is stopped before the range is computed, and could not be resumed."""
    file = place.folder / "pipeline.py"
    mine = file.read_text()
    file.write_text(mine.replace("/lake", "/pond"))
    refused = place.backfill(code=2)
    assert f"does not write {place.folder}/pond" in refused.stderr
    assert f"it writes file://{place.folder}/lake" in refused.stderr
    file.write_text(mine.replace('us.sum("value")', 'us.max("value")'))
    refused = place.backfill(code=2)
    assert "could not go on with pipeline:build" in refused.stderr
    assert "operator 'window'" in refused.stderr
    [job] = place.jobs()
    assert job["state"] == "RUNNING"
    assert not list((place.folder / "home" / "backfills").glob("*/journal.json"))
    place.send(FIRST, ALL)
    place.assert_exact(ALL, backfilled=False)


@pytest.mark.parametrize("point", in_the_gate([None, "backfill.done:1", "backfill.done:6"], -1))
def test_a_job_on_a_cluster_of_its_own_gets_a_new_one(place: Place, point: str | None) -> None:
    place.send(0, FIRST)
    place.start("local")
    place.assert_exact(FIRST, backfilled=False)
    if point is not None:
        place.backfill(code=None, **killing(place.folder / "killed", point))
    done = place.backfill()
    place.send(FIRST, ALL)
    place.assert_exact(ALL)
    [job] = place.jobs()
    assert (job["job"], job["name"], job["state"]) == (done["job"], NAME, "RUNNING")
    place.terminal("cancel", done["job"])
    place.terminal.until(lambda: not place.jobs(), "the end of the job")


def test_a_table_whose_job_does_not_run_is_replaced_offline(place: Place) -> None:
    place.send(0, FIRST)
    started = place.start("local")
    place.assert_exact(FIRST, backfilled=False)
    savepoint = place.terminal.json("stop", started["job"], "-p", str(place.folder / "savepoints"))[
        "savepoint"
    ]
    refused = place.backfill(code=3)
    assert "give --offline" in refused.stderr
    done = place.backfill("--offline")
    assert (done["verdict"], done["job"], done["savepoint"]) == ("replaced", None, None)
    place.send(FIRST, ALL)
    resumed = ("run", "pipeline:build", "-t", "local", "-d", "-s", savepoint, *OPTIONS)
    job = place.terminal.json(*resumed)["job"]
    place.assert_exact(ALL)
    place.terminal("cancel", job)
