"""Names that reach a cluster, or those who ask it: counters, jobs, REST paths, arguments of commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec
import pytest

from tests.eventually import eventually
from tests.names import BY_CASE, ODD
from tests.unit.master.conftest import Cluster, graph, request
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import JobId, LineageId, VertexId
from unistream.cli.main import main
from unistream.client.job.lookup import find_job
from unistream.connector.group import read_group
from unistream.connector.group.file_log import FileGroupLog
from unistream.core.graph import check
from unistream.model.counted_rows import dead_letters_of, late_rows_of, out_of_order_rows_of, skipped_rows_of
from unistream.model.counter_names import out_of_order_counter
from unistream.model.job_info import SubtaskInfo, pending_records_of
from unistream.model.messages import TaskMetrics
from unistream.model.metric_names import (
    DEAD_LETTERS,
    LATE_RECORDS_DROPPED,
    PENDING_RECORDS,
    SKIPPED,
    user_metrics_of,
)
from unistream.operator.process.user_metrics import UserMetrics
from unistream.port.group import GroupCommit
from unistream.rest.metrics import counters
from unistream.worker.task.environment import OperatorMetrics, TaskCounters

PRINTABLE: Final = [*(name for name in ODD.values() if name.isprintable() and 0 < len(name) <= 200), *BY_CASE]

# --- counters -----------------------------------------------------------------------------------------

SPLITS: Final = ["orders.user.clicked-0", "orders.dead_letters", *PRINTABLE]


@pytest.mark.parametrize("operator", ["a.user.b", "user", "numLateRecordsDropped", "compiling", *PRINTABLE])
def test_a_counter_is_that_of_its_operator_whatever_a_function_calls_its_own(operator: str) -> None:
    ours = {DEAD_LETTERS: 1, LATE_RECORDS_DROPPED: 2, SKIPPED: 3, PENDING_RECORDS: 4}
    task = TaskCounters()
    of_operator = OperatorMetrics(task, operator)
    for number, name in enumerate(ours, 10):
        of_operator.add(name, ours[name])
        UserMetrics(of_operator).count(name, number)
    for number, split in enumerate(SPLITS, 1):
        of_operator.add(out_of_order_counter(split), number)
    assert dead_letters_of(task.user) == {operator: 1}
    assert late_rows_of(task.user) == {operator: 2}
    assert skipped_rows_of(task.user) == {operator: 3}
    assert pending_records_of(task.user) == 4
    assert user_metrics_of(task.user) == {f"{operator}: {name}": n for n, name in enumerate(ours, 10)}
    assert out_of_order_rows_of(task.user) == {f"{operator}: {split}": n for n, split in enumerate(SPLITS, 1)}


def test_rest_loses_no_counter_of_operators_that_have_one_name_there() -> None:
    task = TaskCounters()
    for name in PRINTABLE:
        UserMetrics(OperatorMetrics(task, name)).count("rows")
    metrics = TaskMetrics(user=task.user)
    shown = counters(
        SubtaskInfo(
            vertex=VertexId("v"), vertex_name="v", index=0, attempt=0, state="RUNNING", metrics=metrics
        )
    )
    rows = {name: value for name, value in shown.items() if name.endswith(".rows")}
    assert sum(rows.values()) == len(PRINTABLE)
    assert not set(" :,") & set("".join(rows))


def test_an_operator_whose_counters_would_look_like_those_of_a_function_is_refused() -> None:
    made = graph()
    [operator] = made.vertices[0].operators
    named = msgspec.structs.replace(operator, name="map User.user")
    source = msgspec.structs.replace(made.vertices[0], operators=(named,))
    with pytest.raises(ConfigError, match=r"'map User\.user': the name ends like"):
        check(msgspec.structs.replace(made, vertices=(source, *made.vertices[1:])))


# --- jobs, and paths of REST --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    cluster = Cluster(root=tmp_path_factory.mktemp("cluster"), workers=ScriptedWorkers(ends=False))
    served = Api(cluster)
    cluster.dispatcher.submit(request(graph("there before")))
    yield served
    served.close()
    cluster.dispatcher.close()


def found(api: Api, name: str) -> JobId:
    address = urlsplit(api.server.url)
    config = Configuration({"rest.address": str(address.hostname), "rest.port": str(address.port)})
    with find_job(config, name) as client:
        return client.job_id


def test_a_job_is_found_under_its_name(api: Api) -> None:
    names = list(dict.fromkeys([*PRINTABLE[::3], *BY_CASE]))
    before = {job["jid"] for job in api.get("/jobs/overview")["jobs"]}
    jobs = {name: api.cluster.dispatcher.submit(request(graph(name))) for name in names}
    shown = {job["jid"]: job["name"] for job in api.get("/jobs/overview")["jobs"] if job["jid"] not in before}
    assert shown == {job: name for name, job in jobs.items()}
    assert {name: found(api, name) for name in names} == jobs
    for name in set(ODD.values()) - set(PRINTABLE):
        with pytest.raises(ConfigError, match="name"):
            api.cluster.dispatcher.submit(request(graph(name)))


def test_a_name_that_begins_the_id_of_another_job_means_neither(api: Api) -> None:
    other = api.cluster.dispatcher.submit(request(graph("other")))
    ended = api.cluster.dispatcher.submit(request(graph(other[:6])))
    with pytest.raises(ConfigError, match="matches 2 jobs"):
        found(api, other[:6])
    api.cluster.dispatcher.cancel(ended)
    eventually(lambda: api.cluster.dispatcher.job(ended).is_terminal, "the job ends")
    with pytest.raises(ConfigError, match="matches 2 jobs"):
        found(api, other[:6])


NO_VERTEX: Final = ('{"status":"deprecated"}', "[]")
"""What Flink says, too, of a vertex that it does not know."""
PATHS: Final = (
    "/taskmanagers/{}",
    *(f"/jobs/{{}}{below}" for below in ("", "/status", "/exceptions", "/plan", "/checkpoints")),
    *(f"/jobs/{{}}/{what}" for what in ("vertices/v/metrics", "vertices/v/backpressure")),
    *(f"/jobs/JOB/vertices/{{}}/{what}" for what in ("metrics", "backpressure", "subtasks/metrics")),
    *(f"/jobs/JOB/{what}/{{}}" for what in ("savepoints", "checkpoints", "checkpoints/details", "rescaling")),
    "/jobs/JOB/vertices/v/metrics?get={}",
    *("/unistream/jobs/{}", "/unistream/run-links?job={}", "/unistream/commits?after={}"),
)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_of_rest_with_any_name_is_answered_or_refused_in_one_sentence(api: Api, path: str) -> None:
    job = api.get("/jobs")["jobs"][0]["id"] if "JOB" in path else ""
    for name in ODD.values():
        if name in ("", ".."):  # a client makes another path of it
            continue
        answer = api.http.get(path.replace("JOB", job).replace("{}", quote(name, safe="")))
        if answer.status_code == 200:
            assert answer.text in NO_VERTEX, name
            continue
        assert answer.status_code in (400, 404), (name, answer.text)
        [why] = answer.json()["errors"]
        assert (why != "", "\n" in why) == (True, False)


# --- commands -----------------------------------------------------------------------------------------

ARGUMENTS: Final = [name for name in ODD.values() if name and "\0" not in name and not name.startswith("-")]
COMMANDS: Final = (
    ("savepoint", "inspect", "{}"),
    ("plan", "tests.bounded_pipeline:{}", "--against", "/in"),
    ("explain", "{}"),
    ("dead-letters", "list", "{}"),
    ("group", "show", "/not/there", "{}"),
    ("connectors", "info", "{}"),
    ("cluster", "stop", "{}"),
    ("list", "-D", "{}=1"),
    ("list", "-m", "{}"),
)


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=[" ".join(words[:2]) for words in COMMANDS])
def test_a_command_refuses_a_name_that_is_not_there(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each name meets three of the commands, which pass it on in the same way."""
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    for name in ARGUMENTS[number % 3 :: 3]:
        if ":" in name and "stop" in COMMANDS[number]:  # an address
            continue
        code = main([word.replace("{}", name) for word in COMMANDS[number]])
        said = capsys.readouterr()
        assert (code in (1, 2), said.out) == (True, ""), (name, said)
        assert said.err.startswith("error: "), (name, said)
    assert [path.name for path in (tmp_path / "in").iterdir()] == []


# --- the log of a commit group ------------------------------------------------------------------------


def test_a_commit_group_has_the_records_of_its_name(tmp_path: Path) -> None:
    names = ["a.b", "größe", "-a", "1a", "_a", "None", "n" * 200, *BY_CASE]
    for number, name in enumerate(names):
        record = GroupCommit(
            group=name,
            number=1,
            lineage=LineageId("l"),
            job="j",
            checkpoint=number,
            committed_ms=0,
            tables={},
        )
        assert FileGroupLog(str(tmp_path), name).append(record)
    for number, name in enumerate(names):
        assert (read_group(str(tmp_path), name).group, read_group(str(tmp_path), name).checkpoint) == (
            name,
            number,
        )
