"""The web UI as somebody uses it, with a real cluster and real jobs behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import unistream as us
from tests.browser.web_ui import (
    FARES,
    HOSTILE,
    check_case,
    fails,
    hostile,
    missing,
    printable,
    reads,
    run_command,
    running_case,
    windows,
    writes,
)
from tests.eventually import WAIT_S
from unistream.base.config import Configuration
from unistream.base.ids import JobId
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

pytestmark = pytest.mark.timeout(900)

TOKENS = {"security.rest.authentication": "token"}
NO_TOKENS = {"security.rest.authentication": "none"}
NARROW = {"size": {"width": 400, "height": 800}, "colorScheme": "dark"}


@pytest.fixture
def cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[EmbeddedCluster]:
    """It wants tokens. `request.param`: more of its configuration."""
    why = missing()
    if why is not None:
        pytest.skip(why)
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    config = Configuration(TOKENS | getattr(request, "param", {}))
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


def test_keys_widths_paper_and_screen_readers_reach_all_of_it(
    cluster: EmbeddedCluster, flights: Callable[[], str]
) -> None:
    check_case("reached", "byEverybody", cluster.rest_url, job=flights())


def test_a_job_that_the_history_loses_while_its_page_is_open_is_said_to_be_gone(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "former") as former:
        graph, code = fails(tmp_path).job_graph("fares")
        job = former.submit(SubmitRequest(graph=graph, artifact=pack(code), config={})).job_id
        assert former.dispatcher.wait(job, WAIT_S)
    database = f"sqlite:///{tmp_path / 'home' / 'metadata.db'}"
    with running_case("reached", "removed", cluster.rest_url, job=str(job)) as await_word:
        await_word("shown")
        run_command(tmp_path, "db", "prune", "--url", database, "-D", "metadata.retention.jobs=0")


def test_a_job_is_upgraded_over_a_reload_and_goes_back_where_it_does_not_come_up(
    cluster: EmbeddedCluster, flights: Callable[[], str]
) -> None:
    check_case("upgrades", "upgraded", cluster.rest_url, job=flights())


def test_what_cannot_be_done_is_said_in_the_words_of_the_server(
    cluster: EmbeddedCluster, flights: Callable[[], str]
) -> None:
    check_case("actions", "refusals", cluster.rest_url, job=flights())


@pytest.mark.parametrize("cluster", [NO_TOKENS, {}], indirect=True, ids=["without tokens", "with tokens"])
def test_pages_of_others_change_nothing(cluster: EmbeddedCluster, flights: Callable[[], str]) -> None:
    check_case("guard", "strangers", cluster.rest_url, job=flights())


@pytest.mark.parametrize("cluster", [{"web.cancel.enable": "false"}], indirect=True, ids=["turned off"])
def test_pages_change_nothing_where_the_configuration_says_so(
    cluster: EmbeddedCluster, flights: Callable[[], str]
) -> None:
    check_case("actions", "turnedOff", cluster.rest_url, job=flights())


@pytest.mark.parametrize("module", ["actions", "upgrades"], ids=["a stop", "an upgrade"])
def test_what_was_asked_for_while_nobody_led_is_done_by_the_next_leader(
    cluster: EmbeddedCluster, flights: Callable[[], str], tmp_path: Path, module: str
) -> None:
    job, url = flights(), cluster.rest_url
    with running_case(module, "anotherLeader", url, job=job) as await_word:
        await_word("ready")
        cluster.close()
        await_word("asked")
        port = Configuration(TOKENS | {"rest.port": url.rpartition(":")[2]})
        with EmbeddedCluster("local", port, workdir=tmp_path / "cluster") as later:
            await_word("done")
            info = later.dispatcher.job(JobId(job))
    assert (info.state, info.savepoint is not None) == ("FINISHED", True)


@pytest.mark.parametrize("window", [{}, NARROW], ids=["wide and light", "narrow and dark"])
def test_a_row_that_failed_is_corrected_in_the_browser_and_replayed(
    cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: dict[str, object]
) -> None:
    (tmp_path / "fares.py").write_text(FARES)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(FARES, names)
    env = us.Environment()
    names["build"](env)
    graph, code = env.job_graph("fares")
    request = SubmitRequest(graph=graph, artifact=pack(code), pipeline=env.packed_pipeline("fares"))
    job = cluster.submit(request).job_id
    assert cluster.dispatcher.wait(job, WAIT_S)
    assert cluster.dispatcher.job(job).state == "FINISHED"
    edits = tmp_path / "edits.jsonl"
    check_case("letters", "correct", cluster.rest_url, job=str(job), file=str(edits), **window)
    replay = ("dead-letters", "replay", "lake/dead", "fares:build", "-t", "local")
    assert "there is nothing to replay" in run_command(tmp_path, *replay, "--edits", str(edits))
    fares = DeltaTable(str(tmp_path / "lake" / "fares")).to_pyarrow_table().sort_by("id").to_pylist()
    assert fares == [{"id": 1, "fare": 95}, {"id": 2, "fare": 120}]


def test_jobs_that_feed_each_other_are_drawn(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for name, env in (("writes", lambda: writes(lake)), ("reads", lambda: reads(lake, tmp_path / "out"))):
        graph, code = env().job_graph(name)
        job = cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config={})).job_id
        assert cluster.dispatcher.wait_for(job, lambda info: bool(info.metrics.get("rows_committed")), WAIT_S)
    check_case("pages", "feeds", cluster.rest_url, table=f"file://{lake}")


@pytest.mark.parametrize("window", [{}, NARROW], ids=["wide and light", "narrow and dark"])
def test_a_plan_and_a_story_are_drawn_from_files(
    cluster: EmbeddedCluster, tmp_path: Path, window: dict[str, object]
) -> None:
    (tmp_path / "fares.py").write_text(FARES)
    plan, story = tmp_path / "plan.json", tmp_path / "story.json"
    plan.write_text(run_command(tmp_path, "explain", "fares:build", "--json"))
    run_command(tmp_path, "simulate", "fares:build", "--seed", "1", "--story-file", str(story))
    check_case("pages", "files", cluster.rest_url, plan=str(plan), story=str(story), **window)


@pytest.mark.parametrize("window", [{}, NARROW], ids=["wide and light", "narrow and dark"])
def test_names_rows_and_errors_are_never_executed(
    cluster: EmbeddedCluster, tmp_path: Path, window: dict[str, object]
) -> None:
    jobs = []
    for env in (hostile(tmp_path), fails(tmp_path / "failing", HOSTILE)):
        graph, code = env.job_graph(printable(200))
        jobs.append(cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config={})).job_id)
    job, failed = jobs
    assert cluster.dispatcher.wait(failed, WAIT_S)
    name = cluster.dispatcher.job(job).name
    given = {"job": str(job), "failed": str(failed), "called": name, "error": "onerror"}
    check_case("names", "hostile", cluster.rest_url, **given, **window)


@pytest.mark.parametrize("case", ["farAway", "heldBack", "turnedAway"])
def test_what_stands_between_is_said_and_the_page_goes_on(
    cluster: EmbeddedCluster, flights: Callable[[], str], case: str
) -> None:
    check_case("between", case, cluster.rest_url, job=flights())
