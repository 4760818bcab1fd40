"""`unistream upgrade`: the job is replaced, goes on, or the old version is started again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.eventually import WAIT_S, eventually
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import JobId, LineageId
from unistream.base.secrets import HIDDEN
from unistream.cli.main import main
from unistream.cli.upgrade import kept_options
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.job.lookup import find_job
from unistream.model.job_info import JobInfo

VERSIONS = """
import unistream as us

def version(env, stop_at, uid="numbers"):
    source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=None, bounded=False, rows_per_second=500)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid(uid)

    def checked(batch):
        if stop_at == 0:
            raise ValueError("this version is broken")
        return batch

    rows.map_batches(checked, returns=rows.schema).uid("checked").sink_to(us.BlackholeSink()).uid("out")

def first(env): version(env, 1)
def second(env): version(env, 2)
def renamed(env): version(env, 2, "ids")
def broken(env): version(env, 0)
"""
STREAMING = ("-D", "execution.checkpointing.interval=200 ms", "-D", "restart-strategy.type=none")


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module in the current folder."""
    name = f"versions_{abs(hash(str(tmp_path))):x}"
    (tmp_path / f"{name}.py").write_text(VERSIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "")
    return name


def await_up(job: str) -> None:
    with find_job(Configuration(), job) as client:
        eventually(lambda: client.status().all_tasks_run, "it is up", WAIT_S)


def test_a_job_is_replaced_by_another_version_or_goes_on(
    start_cluster: Callable[[], EmbeddedCluster], versions: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = start_cluster()

    def running() -> list[str]:
        return [job.job for job in cluster.dispatcher.jobs() if job.ended_ms is None]

    assert main(["run", f"{versions}:first", "-t", "remote", "--detached", *STREAMING, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["job"]
    await_up(first)
    assert main(["upgrade", first[:8], f"{versions}:first", *STREAMING]) == 2
    assert "runs this version of the pipeline already" in capsys.readouterr().err
    assert main(["upgrade", first, f"{versions}:second", *STREAMING, "--json"]) == 0
    shown = capsys.readouterr()
    answer = json.loads(shown.out)
    assert answer["replaces"] == first
    assert running() == [answer["job"]]
    assert f"job {first} has ended with savepoint" in shown.err
    assert "--request-id" in shown.err
    await_up(answer["job"])
    assert main(["upgrade", answer["job"], "--undo", "--json"]) == 0
    shown = capsys.readouterr()
    undone = json.loads(shown.out)
    assert undone["replaces"] == answer["job"]
    assert f"the version before it, which job {first} has run" in shown.err
    assert running() == [undone["job"]]
    digests = {cluster.dispatcher.job(JobId(job)).digest for job in (first, undone["job"])}
    assert len(digests) == 1, "it is the first version again"
    await_up(undone["job"])
    assert main(["upgrade", undone["job"], f"{versions}:broken", *STREAMING, "--probation", "2 s"]) == 1
    assert "this version is broken" in capsys.readouterr().err
    [back] = running()
    assert back not in (first, answer["job"], undone["job"])
    assert main(["upgrade", first, f"{versions}:second", *STREAMING]) != 0
    assert "has ended as FINISHED" in capsys.readouterr().err
    assert running() == [back]
    assert main(["cancel", back]) == 0


@pytest.mark.parametrize(
    ("words", "then"),
    [
        pytest.param([], "give MODULE:FUNCTION, the new version, or --undo", id="nothing"),
        pytest.param(["flows:b", "--undo"], "give MODULE:FUNCTION, the new version, or --undo", id="both"),
        pytest.param(["--undo", "--probation", "1 min"], "--probation is for a new version", id="it has run"),
    ],
)
def test_what_is_asked_for_is_one_thing(
    words: list[str], then: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["upgrade", "flights", *words]) == 2
    assert then in capsys.readouterr().err


def test_a_version_that_does_not_fit_is_refused_before_a_job_without_checkpoints_is_stopped(
    start_cluster: Callable[[], EmbeddedCluster], versions: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = start_cluster()
    assert main(["run", f"{versions}:first", "-t", "remote", "--detached", "--json"]) == 0
    job = json.loads(capsys.readouterr().out)["job"]
    await_up(job)
    assert main(["upgrade", job, f"{versions}:renamed"]) == 2
    said = capsys.readouterr().err
    assert "'numbers': the job has no operator with this uid; give it to the operator, or allow" in said
    assert said.rstrip()[-1] not in ":;"
    assert ": ;" not in said
    assert main(["upgrade", job, "--undo"]) == 2
    assert f"there is no earlier version of job {job} that its cluster could" in capsys.readouterr().err
    info = cluster.dispatcher.job(job)
    assert (info.state, info.restarts) == ("RUNNING", 0)
    assert [one.job for one in cluster.dispatcher.jobs()] == [job]


def test_a_new_version_keeps_the_options_of_the_command_line(
    start_cluster: Callable[[], EmbeddedCluster], versions: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = start_cluster()
    options = ("-D", "execution.checkpointing.interval=200 ms", "-D", "pipeline.max-parallelism=64")
    assert main(["run", f"{versions}:first", "-t", "remote", "--detached", "--json", *options]) == 0
    job = json.loads(capsys.readouterr().out)["job"]
    await_up(job)
    again = ("-D", "execution.checkpointing.interval=300 ms")
    for version, words, interval in (("second", (), "200 ms"), ("first", again, "300 ms")):
        assert main(["upgrade", job, f"{versions}:{version}", "--json", *words]) == 0
        shown = capsys.readouterr()
        assert "options of the job are kept: " in shown.err
        job = json.loads(shown.out)["job"]
        given = {"execution.checkpointing.interval": interval, "pipeline.max-parallelism": "64"}
        assert cluster.dispatcher.job(job).given == given
        graph = cluster.dispatcher.masters()[job].journal.graph
        assert given.items() <= graph.config.items()
        assert {vertex.max_parallelism for vertex in graph.vertices} == {64}


def test_an_option_that_is_a_secret_has_to_be_given_again() -> None:
    running = JobInfo(
        job=JobId("a"),
        name="flow",
        lineage=LineageId("l"),
        state="RUNNING",
        target="local",
        submitted_ms=1,
        given={"s3.secret-key": HIDDEN, "s3.region": "here"},
    )
    assert kept_options(running, Configuration({"s3.secret-key": "again"})) == {"s3.region": "here"}
    with pytest.raises(
        ConfigError, match=r"-D s3\.secret-key=…, which its cluster does not show: give it again"
    ):
        kept_options(running, Configuration())
