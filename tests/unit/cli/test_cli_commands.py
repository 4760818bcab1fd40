from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.eventually import WAIT_S
from tests.unit.cli.shell import Shell
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.machine import home
from unistream.model.snapshot_kind import SavepointFormat
from unistream.savepoint.reading import read_savepoint

Start = Callable[[], EmbeddedCluster]


STORED = ["pipelines:endless", "-t", "local", "-D", "execution.checkpointing.interval=1 s", "-D"]
REFUSED = [
    pytest.param(
        ["pipelines:bounded", "-D", "parallelism.defualt=2"], "did you mean 'parallelism.default'", id="key"
    ),
    pytest.param(["pipelines:bounded", "-D", "novalue"], "-D takes key=value", id="assignment"),
    pytest.param(
        ["pipelines:bounded", "-D", "execution.checkpointing.interval=x"], "not a duration", id="value"
    ),
    pytest.param(
        ["pipelines:bounded", "-p", "0"], "parallelism.default: 0 is not between 1", id="parallelism"
    ),
    pytest.param(["pipelines:bounded", "-t", "mars"], "target 'mars' is not one of", id="target"),
    pytest.param(["pipelines"], "is not MODULE:FUNCTION", id="no function"),
    pytest.param(["pipe lines:x"], "is not MODULE:FUNCTION", id="no identifier"),
    pytest.param(["no_such_module_here:f"], "there is no module 'no_such_module_here'", id="no module"),
    pytest.param(["pipelines:missing"], "has no 'missing'", id="no such function"),
    pytest.param(["pipelines:bunded"], "has no 'bunded'; did you mean 'bounded'?", id="a slip"),
    pytest.param(["pipelines:not_callable"], "is not a function but int", id="not a function"),
    pytest.param(["pipelines:raising"], "raising raised KeyError: 'missing' at", id="function raises"),
    pytest.param(
        ["pipelines:alone"],
        "alone() cannot be called with the environment alone: write def",
        id="nothing is taken",
    ),
    pytest.param(["pipelines:of_two"], "of_two(env, day) cannot be called with", id="too much is taken"),
    pytest.param(
        ["pipelines:own"], "own returned an Environment of its own: write def", id="its own environment"
    ),
    pytest.param(["pipelines:refused"], "parallelism", id="pipeline refused"),
    pytest.param(["pipelines:empty"], "the pipeline is empty", id="nothing to run"),
    pytest.param(
        [*STORED, "execution.checkpointing.dir=/proc/version"],
        "cannot store snapshots in /proc/version: it is a file, or below one; change "
        "execution.checkpointing.dir",
        id="a file for checkpoints",
    ),
    pytest.param(
        [*STORED, "execution.checkpointing.dir=/proc/nope"],
        "cannot store snapshots in /proc/nope: No such file or directory; change execution.checkpointing.dir",
        id="nowhere for checkpoints",
    ),
    pytest.param(
        ["-d", *STORED, "execution.checkpointing.dir=/proc/nope"],
        "cannot store snapshots in /proc/nope: No such file or directory; change execution.checkpointing.dir",
        id="nowhere for checkpoints of a job in the background",
    ),
]


@pytest.mark.parametrize(("words", "text"), REFUSED)
def test_bad_input_is_one_sentence_and_2(
    shell: Shell, pipelines: str, own_home: Path, words: list[str], text: str
) -> None:
    code = shell("run", *[word.replace("pipelines", pipelines) for word in words])
    assert code == 2
    assert text in shell.err
    assert shell.err.startswith("error: ")
    assert shell.err.count("\n") == 1
    assert "Traceback" not in shell.err + shell.out
    assert not list(own_home.glob("work/*"))
    assert not list(own_home.glob("runs/*"))


def test_a_module_whose_import_fails_is_shown_with_the_place(
    shell: Shell, tmp_path: Path, pipelines: str
) -> None:
    (tmp_path / f"{pipelines}_broken.py").write_text("import json\n\nimport no_such_dependency\n")
    assert shell("run", f"{pipelines}_broken:f") == 2
    assert "No module named 'no_such_dependency'" in shell.err
    assert "_broken.py:3" in shell.err


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["nope"],
        ["stop"],
        ["run", "a:b", "--nope"],
        ["cluster", "start", "--nope"],
        ["stop", "job", "--type", "open"],
        ["savepoint", "job", "--type", "open"],
    ],
)
def test_wrong_usage_is_2(shell: Shell, words: list[str]) -> None:
    assert shell(*words) == 2


def test_help_and_version_are_0(shell: Shell) -> None:
    assert shell("--help") == 0
    assert all(
        command in shell.out for command in ("run", "list", "info", "savepoint", "stop", "cancel", "cluster")
    )
    assert shell("--version") == 0
    assert shell.out.startswith("unistream 0")


class TestWithoutACluster:
    def test_a_list_is_empty_not_an_error(self, shell: Shell) -> None:
        assert shell("list") == 0
        assert "no job runs here" in shell.out
        assert shell("list", "--json") == 0
        assert shell.json() == {"jobs": [], "unanswered": []}

    @pytest.mark.parametrize("command", ["info", "exceptions", "savepoint", "stop", "cancel"])
    def test_a_job_is_unreachable(self, shell: Shell, command: str) -> None:
        assert shell(command, "some-job") == 3
        assert "start one with 'unistream cluster start'" in shell.err

    def test_a_remote_run_is_unreachable(self, shell: Shell, pipelines: str) -> None:
        assert shell("run", f"{pipelines}:bounded", "-t", "remote") == 3

    def test_an_address_where_nobody_answers_is_unreachable(self, shell: Shell) -> None:
        assert shell("list", "-D", "rest.port=1") == 3
        assert "http://127.0.0.1:1 does not answer" in shell.err


class TestRegistry:
    def test_a_cluster_is_found_until_it_ends(self, start_cluster: Start, own_home: Path) -> None:
        cluster = start_cluster()
        [entry] = home.clusters()
        assert (entry.url, entry.pid, entry.target) == (cluster.rest_url, os.getpid(), "mini")
        [file] = own_home.glob("clusters/*")
        assert file.stat().st_mode & 0o777 == 0o600
        assert own_home.stat().st_mode & 0o777 == 0o700
        cluster.close()
        assert home.clusters() == []
        assert not list(own_home.glob("clusters/*"))
        assert not list(own_home.glob("work/*"))

    @pytest.mark.parametrize(
        "content",
        [
            b'{"id":"a","url":"http://127.0.0.1:1","pid":%d,"target":"x","started_ms":1,"started":"1"}'
            % os.getpid(),
            b'{"id":"a","url":"http://127.0.0.1:1","pid":4194305,"target":"x","started_ms":1,"started":"7"}',
            b"{",
        ],
        ids=["the pid was used again", "the process is gone", "unreadable"],
    )
    def test_stale_entries_are_removed(self, own_home: Path, content: bytes) -> None:
        (own_home / "clusters").mkdir(parents=True)
        (own_home / "clusters" / "a.json").write_bytes(content)
        assert home.clusters() == []
        assert not list(own_home.glob("clusters/*"))

    def test_several_clusters_have_to_be_told_apart(
        self, shell: Shell, start_cluster: Start, pipelines: str
    ) -> None:
        first, second = start_cluster(), start_cluster()
        assert shell("run", f"{pipelines}:bounded", "-t", "remote") == 2
        assert "choose one with -m HOST:PORT" in shell.err
        assert str(first.rest_url) in shell.err
        port = str(second.rest_url).rpartition(":")[2]
        assert shell("run", f"{pipelines}:bounded", "-t", "remote", "-D", f"rest.port={port}") == 0
        assert [job.state for job in second.dispatcher.jobs()] == ["FINISHED"]


class TestJobs:
    def test_an_attached_run_ends_with_the_job(
        self, shell: Shell, start_cluster: Start, pipelines: str
    ) -> None:
        start_cluster()
        assert shell("run", f"{pipelines}:bounded", "-t", "remote", "--json", "--name", "first") == 0
        result = shell.json()
        assert (result["state"], result["name"]) == ("FINISHED", "first")
        assert shell("run", f"{pipelines}:bounded", "-t", "remote") == 0
        assert "FINISHED" in shell.out

    def test_a_failed_job_is_1_and_says_why(self, shell: Shell, start_cluster: Start, pipelines: str) -> None:
        cluster = start_cluster()
        assert shell("run", f"{pipelines}:failing", "-t", "remote", "--json") == 1
        assert shell.json()["failure"]["kind"] == "UserCodeError"
        assert "no such flight" in shell.err
        assert "explode" in shell.err
        assert shell("list", "--all") == 0
        assert "FAILED" in shell.out

        job = cluster.dispatcher.jobs()[0].job
        assert shell("exceptions", job, "--json") == 0
        reported = shell.json()
        [failed] = [
            entry
            for root in reported["exceptions"]
            for entry in (root, *root["concurrent"])
            if entry["kind"] == "UserCodeError"
        ]
        assert reported["job"] == job
        assert failed["task_name"].endswith("(1/1) - execution #0")
        assert shell("exceptions", job[:8]) == 0
        assert "execution #0" in shell.out
        assert "no such flight" in shell.out
        assert "explode" in shell.out

    def test_a_job_that_keeps_restarting_says_why_each_time(
        self, shell: Shell, start_cluster: Start, pipelines: str
    ) -> None:
        start_cluster()
        restarts = {"type": "fixed-delay", "fixed-delay.attempts": "2", "fixed-delay.delay": "1200 ms"}
        defines = [f"-Drestart-strategy.{key}={value}" for key, value in restarts.items()]
        assert shell("run", f"{pipelines}:failing", "-t", "remote", "--json", *defines) == 1
        *reported, end = shell.err.splitlines()
        assert len(reported) == 2
        for number, line in enumerate(reported):
            assert f"execution #{number} failed and restarts: UserCodeError: " in line
            assert "no such flight" in line
        assert end.startswith("error: job ")
        assert shell.json()["restarts"] == 2

    def test_a_whole_life(self, shell: Shell, start_cluster: Start, pipelines: str, tmp_path: Path) -> None:
        cluster = start_cluster()
        run = ("run", f"{pipelines}:endless", "-t", "remote", "--detached", "--json", "--name", "endless")
        assert shell(*run) == 0
        job = shell.json()["job"]
        cluster.client(job).wait_for(lambda info: info.state == "RUNNING", WAIT_S)

        assert shell("list") == 0
        assert job in shell.out
        assert shell("info", "endless") == 0
        assert "RUNNING" in shell.out
        assert shell("info", job[:6], "--json") == 0
        assert shell.json()["job"] == job

        assert shell("savepoint", job, "-p", "taken") == 0
        assert str(tmp_path / "taken") in shell.out
        assert shell("savepoint", job, "-p", "native", "-type", "native", "--json") == 0
        assert read_savepoint(shell.json()["savepoint"]).format is SavepointFormat.NATIVE
        assert shell("stop", "endless", "--drain", "--type", "NATIVE", "--json") == 0
        path = shell.json()["resumable"]
        both = [read_savepoint(found) for found in (path, shell.json()["savepoint"])]
        assert [found.format for found in both] == [SavepointFormat.NATIVE] * 2
        assert cluster.dispatcher.job(job).state == "FINISHED"

        assert shell("stop", job) == 2
        assert "already ended" in shell.err
        assert shell("cancel", job) == 2
        assert shell("run", f"{pipelines}:endless", "-t", "remote", "--detached", "--json", "-s", path) == 0
        second = shell.json()["job"]
        assert cluster.dispatcher.job(second).lineage == cluster.dispatcher.job(job).lineage
        assert shell("cancel", second[:8]) == 0
        assert cluster.dispatcher.wait(second, WAIT_S)

    def test_a_name_that_two_jobs_have_is_not_enough(
        self, shell: Shell, start_cluster: Start, pipelines: str
    ) -> None:
        start_cluster()
        for _ in range(2):
            assert shell("run", f"{pipelines}:endless", "-t", "remote", "--detached", "--name", "twin") == 0
        assert shell("cancel", "twin") == 2
        assert "matches 2 jobs" in shell.err
        assert shell("cancel", "abc") == 2
        assert "there is no job 'abc'" in shell.err

    def test_a_savepoint_that_does_not_exist_is_2(
        self, shell: Shell, start_cluster: Start, pipelines: str, tmp_path: Path
    ) -> None:
        cluster = start_cluster()
        assert shell("run", f"{pipelines}:bounded", "-t", "remote", "-s", "nowhere") == 2
        assert str(tmp_path / "nowhere") in shell.err
        assert cluster.dispatcher.jobs() == []
