"""Pages of the web UI at several masters, of which the leader is killed: with real ZooKeeper and Kafka."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.web_ui import missing, running_case
from tests.integration.copied_topic import Flow
from tests.integration.several_masters import Masters, masters_in
from unistream.testing.devtools.process import free_ports

pytestmark = [pytest.mark.timeout(900), pytest.mark.kafka]


@pytest.fixture
def masters(tmp_path: Path, zookeeper: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Masters]:
    why = missing()
    if why is not None:
        pytest.skip(why)
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))  # of its masters, for the owner's token
    with masters_in(tmp_path, zookeeper, options={"security.rest.authentication": "token"}) as masters:
        yield masters


@pytest.fixture
def flow(tmp_path: Path, kafka: str, topic: str) -> Iterator[Flow]:
    with Flow(tmp_path, kafka, topic) as flow:
        yield flow


def test_pages_go_on_when_another_master_leads(masters: Masters, flow: Flow) -> None:
    [port] = free_ports(1)
    first = masters.start("first", rest_port=str(port))
    masters.await_leader(first)
    second = masters.start("second")
    with masters.client() as client:
        job = client.submit(flow.request()).job_id
        flow.await_commits()
        given = {"job": str(job), "standby": second.serves_at}
        with running_case("leader", "leaderDies", first.urls[-1], **given) as await_word:
            await_word("ready")
            first.end(signal.SIGKILL)
            await_word("followed")
            again = masters.start("again", rest_port=str(port))
            assert again.serves_at == first.serves_at
            await_word("done")
        assert client.info(job).savepoint is not None
        flow.assert_exact()
