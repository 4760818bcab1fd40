"""A cluster of this machine that is started again listens on another port, and its clients follow it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.unit.client.servers import Server, answers
from unistream.base import process_mark
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, NotFound
from unistream.base.ids import NO_CLUSTER, ClusterId
from unistream.client.job.sessions import find_cluster, other_sessions
from unistream.client.job.submission import check_goes_on, connect, connect_to_submit
from unistream.client.machine import home
from unistream.client.machine.leftovers import why_ended
from unistream.client.remote.address import MachineAddress

MINE = ClusterId("c0ffee" * 5 + "00")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))


@pytest.fixture
def end() -> Iterator[Callable[[], None]]:
    """Ends the process of the entry "first"."""

    def end() -> None:
        process.kill()
        process.wait(10)

    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    enter("first", "http://127.0.0.1:1", process.pid)
    try:
        yield end
    finally:
        end()
        assert process.stdin is not None
        process.stdin.close()


def enter(id_: str, url: str, pid: int, cluster: ClusterId = MINE, *, session: bool = True) -> None:
    folder = home.home() / "clusters"
    folder.mkdir(exist_ok=True)
    entry = home.ClusterEntry(
        id=id_,
        url=url,
        pid=pid,
        target="local",
        started_ms=len(list(folder.iterdir())),
        started=process_mark.start_of(pid) or "",
        session=session,
        cluster=cluster,
    )
    (folder / f"{id_}.json").write_bytes(msgspec.json.encode(entry))


@pytest.mark.parametrize(
    ("cluster", "found"),
    [
        pytest.param(MINE, "http://127.0.0.1:2", id="the same cluster"),
        pytest.param(ClusterId("beef"), "http://127.0.0.1:1", id="another cluster on this machine"),
        pytest.param(NO_CLUSTER, "http://127.0.0.1:1", id="one of an earlier version"),
    ],
)
def test_who_is_followed(end: Callable[[], None], cluster: ClusterId, found: str) -> None:
    address = MachineAddress(home.clusters()[0])
    enter("second", "http://127.0.0.1:2", os.getpid(), cluster)
    assert address.url(1) == "http://127.0.0.1:1", "it still runs"
    end()
    assert address.url(1) == found
    assert address.name == found


def test_a_client_goes_on_with_the_cluster_at_its_new_port(tmp_path: Path) -> None:
    listed = answers(lambda _line: (200, {"jobs": [], "cluster": MINE}))
    first = Server(listed)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        enter("first", first.url, process.pid)
        with closing(connect(Configuration())) as client:
            assert client.job_list().cluster == MINE
            process.kill()
            process.wait(10)
            first.close()
            with Server(listed) as second:
                enter("second", second.url, os.getpid())
                assert client.job_list().cluster == MINE
                assert client.url == second.url
    finally:
        process.kill()
        process.wait(10)
        assert process.stdin is not None
        process.stdin.close()


def test_jobs_go_to_the_session_cluster_and_never_to_that_of_another_job() -> None:
    """A cluster that was started for one job ends with it, whatever else runs there."""
    one = "http://127.0.0.1:1"
    enter("one", one, os.getpid(), session=False)
    with pytest.raises(ConfigError, match="was started for one job, and ends with it: no other job can run"):
        connect_to_submit(Configuration())
    with closing(connect(Configuration())) as client:
        assert client.url == one, "the job itself is found there"
    with Server(answers(lambda _line: (200, {}))) as session:
        enter("session", session.url, os.getpid())
        with closing(connect(Configuration())) as client:
            assert client.url == session.url
        check_goes_on(session.url)
        assert other_sessions(session.url) == []
        assert other_sessions("http://127.0.0.1:2") == [session.url]


def test_the_cluster_of_one_job_has_not_ended_if_it_was_started_again(end: Callable[[], None]) -> None:
    (first,) = home.clusters()
    first = msgspec.structs.replace(first, session=False)
    end()
    assert why_ended(first) is not None
    enter("second", "http://127.0.0.1:2", os.getpid())
    assert why_ended(first) is None


@pytest.mark.parametrize("text", ["seco", MINE[:4], MINE], ids=["its process", "its own id", "all of it"])
def test_a_cluster_is_named_by_either_of_its_ids(text: str) -> None:
    enter("second", "http://127.0.0.1:2", os.getpid())
    found = find_cluster(Configuration(), text)
    assert found is not None
    with found[0]:
        assert found[1] is not None
        assert found[1].id == "second"


def test_no_id_is_the_beginning_of_one_that_is_not_known() -> None:
    enter("second", "http://127.0.0.1:2", os.getpid(), NO_CLUSTER)
    with pytest.raises(NotFound):
        find_cluster(Configuration(), MINE[:8])
