from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from unistream.base.errors import ConfigError
from unistream.cli.main import main
from unistream.cli.rescale import parse_widths
from unistream.client.embedded.embedded_cluster import EmbeddedCluster

Start = Callable[[], EmbeddedCluster]
Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a=2", "b=03"], {"a": 2, "b": 3}),
        (["map: x=1 -> sink=4"], {"map: x=1 -> sink": 4}),
        (["a=0"], {"a": 0}),
    ],
)
def test_words(words: list[str], expected: dict[str, int]) -> None:
    assert parse_widths(words) == expected


@pytest.mark.parametrize("word", ["a", "a=", "=2", "a=-1", "a=2.0", "a=two", "a=²", "a=" + "1" * 10])
def test_other_words(word: str) -> None:
    with pytest.raises(ConfigError, match="is not VERTEX=N, such as window=4"):
        parse_widths([word])


def test_a_vertex_twice() -> None:
    with pytest.raises(ConfigError, match="vertex 'a' is given twice"):
        parse_widths(["a=1", "a=2"])


def test_a_job_is_rescaled_and_what_cannot_be_is_said(
    start_cluster: Start, pipelines: str, capsys: Capture
) -> None:
    start_cluster()
    assert main(["run", f"{pipelines}:endless", "-t", "remote", "--detached", "-p", "1", "--json"]) == 0
    job = json.loads(capsys.readouterr().out)["job"]
    await_running(job)

    assert main(["rescale", job[:8], "numbers=3"]) == 0
    out = capsys.readouterr().out
    assert f"job {job} was rescaled" in out
    assert "1 -> 3" in out

    assert main(["rescale", job, "numbers=2", "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["job"], set(reported["parallelism"].values())) == (job, {2})

    for words, code, text in (
        ([job, "nmbers=2"], 2, "has no vertex 'nmbers'; there are"),
        ([job, "numbers=0"], 2, "parallelism 0 is less than 1"),
        ([job, "numbers"], 2, "'numbers' is not VERTEX=N"),
        ([job], 2, ""),
        (["ffffffff", "numbers=2"], 2, "there is no job 'ffffffff'"),
    ):
        assert main(["rescale", *words]) == code
        assert text in capsys.readouterr().err
    assert main(["cancel", job]) == 0


def await_running(job: str) -> None:
    from unistream.base.config import Configuration
    from unistream.client.job.lookup import find_job
    from unistream.client.remote.rest_client import Poll

    with find_job(Configuration(), job) as client:
        poll = Poll(30.0)
        while poll.next():
            if client.status().state == "RUNNING":
                return
    raise AssertionError("it does not run")


def test_no_cluster_is_3(capsys: Capture) -> None:
    assert main(["rescale", "some", "a=2"]) == 3
    assert "no cluster runs here" in capsys.readouterr().err
