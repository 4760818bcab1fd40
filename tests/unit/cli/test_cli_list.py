"""`unistream list -a` while no cluster of this machine answers: the database has the history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.contract.given_metadata import ONE, job
from tests.unit.client.servers import Server, answers, hung, url_of
from unistream.base.config import Configuration
from unistream.cli.main import main
from unistream.client.machine import home
from unistream.metadata.schema import ensure
from unistream.metadata.store import SqlMetadataStore

IMPATIENT = ("-D", "client.timeout=500 ms")


@pytest.fixture
def history() -> str:
    """The id of a job that has ended."""
    url = home.metadata_url(Configuration())
    ensure(url)
    store = SqlMetadataStore(url)
    try:
        return store.put_job(job(1, ended_ms=9, state="FINISHED"), ONE).job
    finally:
        store.close()


@pytest.fixture(params=["it hangs", "it answers 503", "nothing listens"])
def cluster(request: pytest.FixtureRequest) -> Iterator[str]:
    """The only one that runs."""
    with ExitStack() as owned:
        match request.param:
            case "it hangs":
                url = url_of(owned.enter_context(hung()))
            case "it answers 503":
                busy = Server(answers(lambda _line: (503, {"errors": ["it is still starting"]})))
                url = owned.enter_context(busy).url
            case _:
                with hung() as closed:
                    url = url_of(closed)
        home.register("one", url=url, target="local", now_ms=1)
        yield url


def test_the_history_is_listed_and_the_cluster_is_named(
    cluster: str, history: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "-a", *IMPATIENT]) == 0
    listed = capsys.readouterr()
    assert history in listed.out
    assert cluster in listed.err
    assert listed.err.endswith("; its jobs are not listed\n")
    assert main(["list", "-a", "--json", *IMPATIENT]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [found["job"]["job"] for found in shown["jobs"]] == [history]
    assert [silent["cluster"] for silent in shown["unanswered"]] == [cluster]


def test_without_the_history_there_is_nothing_to_list(
    cluster: str, history: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", *IMPATIENT]) == 3
    assert cluster in capsys.readouterr().err
