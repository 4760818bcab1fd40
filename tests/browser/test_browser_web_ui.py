"""The web UI as somebody uses it, with a real cluster and real jobs behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.browser.web_ui import check_case, missing, running_case, windows
from unistream.base.config import Configuration
from unistream.base.ids import JobId
from unistream.client.embedded import EmbeddedCluster
from unistream.master.job_setup import SubmitRequest
from unistream.worker.code import pack

pytestmark = pytest.mark.timeout(900)

NARROW = {"size": {"width": 400, "height": 800}, "colorScheme": "dark"}


@pytest.fixture
def cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[EmbeddedCluster]:
    """`request.param`: its configuration, if it has any."""
    why = missing()
    if why is not None:
        pytest.skip(why)
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    config = Configuration(getattr(request, "param", {}))
    with EmbeddedCluster("local", config, workdir=tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def flights(cluster: EmbeddedCluster, tmp_path: Path) -> Callable[[], str]:
    """Starts a job, and says its id."""

    def start() -> str:
        graph, code = windows(tmp_path, 2).job_graph("flights")
        return str(cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config={})).job_id)

    return start


@pytest.mark.parametrize("window", [{}, NARROW], ids=["wide and light", "narrow and dark"])
def test_a_job_is_saved_rescaled_drained_started_again_and_cancelled(
    cluster: EmbeddedCluster, flights: Callable[[], str], window: dict[str, object]
) -> None:
    check_case("actions", "wholeLife", cluster.rest_url, job=flights(), **window)


def test_what_cannot_be_done_is_said_in_the_words_of_the_server(
    cluster: EmbeddedCluster, flights: Callable[[], str]
) -> None:
    check_case("actions", "refusals", cluster.rest_url, job=flights())


def test_pages_of_others_change_nothing(cluster: EmbeddedCluster, flights: Callable[[], str]) -> None:
    check_case("guard", "strangers", cluster.rest_url, job=flights())


@pytest.mark.parametrize("cluster", [{"web.cancel.enable": "false"}], indirect=True, ids=["turned off"])
def test_pages_change_nothing_where_the_configuration_says_so(
    cluster: EmbeddedCluster, flights: Callable[[], str]
) -> None:
    check_case("actions", "turnedOff", cluster.rest_url, job=flights())


def test_what_was_asked_for_while_nobody_led_is_done_by_the_next_leader(
    cluster: EmbeddedCluster, flights: Callable[[], str], tmp_path: Path
) -> None:
    job, url = flights(), cluster.rest_url
    with running_case("actions", "anotherLeader", url, job=job) as await_word:
        await_word("ready")
        cluster.close()
        await_word("asked")
        port = Configuration({"rest.port": url.rpartition(":")[2]})
        with EmbeddedCluster("local", port, workdir=tmp_path / "cluster") as later:
            await_word("done")
            info = later.dispatcher.job(JobId(job))
    assert (info.state, info.savepoint is not None) == ("FINISHED", True)
