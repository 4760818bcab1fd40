"""Sinks whose commits become visible together: a reader in a loop, while committers are killed.

All members of a group get the same rows (`grouped_sinks`). A reader of the records sees the same rows in all
of them, always; one that takes the newest version of each table does not.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import unistream as us
from tests.eventually import eventually
from tests.integration.cascaded_sinks import ROWS
from tests.integration.crash_runs import (
    OF_GROUPS,
    RECOVERING,
    WAIT_S,
    Crashes,
    Lives,
    commands_in,
    in_the_gate,
    points_in_code,
    run_to_end,
    submit,
)
from tests.integration.grouped_sinks import (
    Group,
    all_three,
    delta_and_iceberg,
    delta_and_postgres,
    delta_and_upsert,
    delta_sums,
    iceberg_and_postgres,
    two_delta,
    two_postgres,
)
from tests.modes import STREAMING
from tests.postgres import PostgresServer
from unistream.base.config import Configuration
from unistream.base.crash_points import SIGNAL_VARIABLE
from unistream.base.errors import ConfigError
from unistream.client.embedded.embedded_cluster import EmbeddedCluster

OFTEN = {"execution.checkpointing.interval": "400 ms", **RECOVERING}
BATCH = {"execution.runtime-mode": "BATCH", "parallelism.default": "2"}
KINDS = {
    one.__name__: one
    for one in (
        *(two_delta, delta_and_upsert, delta_and_iceberg),
        *(delta_and_postgres, iceberg_and_postgres, all_three, two_postgres),
    )
}
FIRST = "committer.before_commit"
AGAIN = ("committer.before_commit:2", "restore.before_commit")
KILLS = {
    "two_delta: between the members": ("group.member_committed:3",),
    "two_delta: with all members, without the record": ("group.before_record:2",),
    "two_delta: behind the record": ("group.recorded:2",),
    "two_delta: between the members, while it is repeated": (*AGAIN, "group.member_committed"),
    "delta_and_iceberg: between the members": ("group.member_committed:3",),
    "delta_and_iceberg: in the second member": ("iceberg.manifests_written:2",),
    "delta_and_iceberg: behind the record": ("group.recorded:2",),
    "delta_and_postgres: before the transaction": ("group.member_committed:2",),
    "delta_and_postgres: in the transaction": ("sql.before_commit:2",),
    "delta_and_postgres: behind the transaction": ("sql.committed:2",),
    "delta_and_upsert: between the members": ("group.member_committed:3",),
    "delta_and_upsert: with all members, without the record": ("group.before_record:2",),
    "delta_and_upsert: in a commit, while it is repeated": (FIRST, "delta.appended"),
    "iceberg_and_postgres: before the transaction": ("iceberg.committed:2",),
    "iceberg_and_postgres: in the transaction": ("sql.before_commit:2",),
    "iceberg_and_postgres: behind the transaction": ("sql.committed:2",),
    "all_three: between the members": ("group.member_committed:3",),
    "all_three: in the transaction": ("sql.before_commit:2",),
    "all_three: in the transaction, while it is repeated": (FIRST, "sql.before_commit"),
    "two_postgres: in the transaction": ("sql.before_commit:2",),
    "two_postgres: in the transaction, while it is repeated": (*AGAIN, "sql.before_commit"),
}


MASTERS = ["notify.sent:12", "manifest.created:4", "commit.recorded:5"]


def test_every_named_place_of_a_group_has_a_row_here() -> None:
    killed = {point.partition(":")[0] for points in KILLS.values() for point in points}
    assert {one for one in killed if one.startswith(OF_GROUPS)} == set(points_in_code(OF_GROUPS))


@pytest.fixture
def new_database(request: pytest.FixtureRequest) -> Callable[[], str]:
    """The server is started for those who need it."""
    return lambda: str(request.getfixturevalue("postgres").new_database())


@pytest.mark.parametrize("what", in_the_gate(list(KILLS), 0, 6, 17))
def test_readers_never_see_one_without_the_other(
    tmp_path: Path, crashes: Crashes, new_database: Callable[[], str], what: str
) -> None:
    group = KINDS[what.partition(":")[0]](tmp_path, new_database)
    crashes.arm(*KILLS[what])
    with group.watched():
        result = run_to_end(tmp_path, crashes, group.build, OFTEN)
    group.assert_whole()
    assert {uid: result.sinks[uid].rows for uid in group.sinks()} == dict.fromkeys(group.sinks(), ROWS)
    assert any(0 < rows < ROWS for rows, _ in group.looks), "the reader saw checkpoints come"


@pytest.mark.parametrize("point", in_the_gate(MASTERS, 0))
def test_a_master_that_dies_leaves_no_half_a_group(tmp_path: Path, crashes: Crashes, point: str) -> None:
    """The job is started again by hand."""
    group = two_delta(tmp_path, str)
    with commands_in(tmp_path) as command, group.watched():
        config = {**STREAMING, **OFTEN}
        lives = Lives(tmp_path, command, "tests.integration.grouped_sinks:build", config)
        lives.assert_killed(lives.start(**crashes.environment(point)))
        again = lives.start(parallelism=2)
        assert again.wait() == 0, again.err
    crashes.assert_happened()
    group.assert_whole()
    assert any(0 < rows < ROWS for rows, _ in group.looks), "the reader saw checkpoints come"


@pytest.mark.parametrize("kind", in_the_gate([delta_and_postgres, all_three, two_postgres], 0))
def test_a_database_that_stops_inside_the_commit(
    tmp_path: Path, crashes: Crashes, monkeypatch: pytest.MonkeyPatch, kind: Callable[..., Group]
) -> None:
    """Before COMMIT: the members with versions are ahead until the job has recovered. The server is this
    test's own, since others use the shared one."""
    monkeypatch.setenv(SIGNAL_VARIABLE, "STOP")
    server = PostgresServer()
    try:
        group = kind(tmp_path, server.new_database)
        crashes.arm("sql.before_commit:2")
        values = {**OFTEN, **STREAMING, "parallelism.default": "2"}
        cluster = EmbeddedCluster("local", Configuration(values), workdir=tmp_path / "c", rest=False)
        with cluster, group.watched():
            env = us.Environment(values)
            group.build(env, tmp_path)
            job = submit(cluster, env, values)
            eventually(lambda: crashes.all_happened, "a worker stands in the transaction", WAIT_S)
            server.stop()
            server.start()
            for worker in job.status().task_managers:
                assert worker.pid is not None
                os.kill(worker.pid, signal.SIGCONT)
            assert job.result(timeout_s=WAIT_S).state == "FINISHED"
        group.assert_whole()
    finally:
        server.close()


@pytest.mark.parametrize("target", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_in_batch_there_is_one_record(tmp_path: Path, new_database: Callable[[], str], target: str) -> None:
    group = two_delta(tmp_path, new_database)
    env = us.Environment(BATCH, target=target)
    group.build(env, tmp_path, None)
    result = env.execute("batch")
    group.assert_whole()
    assert us.read_group(group.where, "both").number == 1
    assert [result.sinks[uid].rows for uid in ("a", "b")] == [ROWS, ROWS]
    again = us.Environment(BATCH, target=target)
    group.build(again, tmp_path, None)
    with pytest.raises(ConfigError, match=r"another line of jobs.*on_foreign='append'"):
        again.execute("batch")
    group.assert_whole()


def test_a_savepoint_that_lists_half_a_group_is_finished_by_hand(
    tmp_path: Path, crashes: Crashes, new_database: Callable[[], str]
) -> None:
    """The job died between two members and does not come back."""
    group = two_delta(tmp_path, new_database)
    crashes.arm("group.member_committed")
    values = {
        **OFTEN,
        **STREAMING,
        "restart-strategy.type": "none",
        "parallelism.default": "2",
        "execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri(),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    with EmbeddedCluster("local", Configuration(values), workdir=tmp_path / "c", rest=False) as cluster:
        env = us.Environment(values)
        group.build(env, tmp_path)
        job = submit(cluster, env, values)
        result = job.wait(timeout_s=WAIT_S)
        assert result.state == "FAILED"
        checkpoint = result.latest_checkpoint
    crashes.assert_happened()
    assert checkpoint is not None
    rows_a, rows_b = (delta_sums(str(tmp_path / uid), None)[0] for uid in "ab")
    assert rows_a or rows_b, "some of it is visible to who takes the newest version"
    with pytest.raises(us.NotFound):
        group.look()
    done = us.finalize_savepoint(checkpoint)
    assert (done.is_complete, [one.sink for one in done.commits]) == (True, ["both"])
    a, b = group.look()
    assert a == b
    assert a[0] >= max(rows_a, rows_b), "the snapshot may list a second checkpoint"
    assert us.finalize_savepoint(checkpoint).had_nothing_to_do


def test_a_job_goes_on_from_the_savepoint_of_another(tmp_path: Path, new_database: Callable[[], str]) -> None:
    """At another parallelism; the records go on behind those of the first job."""
    group = delta_and_iceberg(tmp_path, new_database)
    values = {**OFTEN, **STREAMING, "execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri()}
    with (
        EmbeddedCluster("local", Configuration(values), workdir=tmp_path / "c", rest=False) as cluster,
        group.watched(),
    ):
        env = us.Environment({**values, "parallelism.default": "2"})
        group.build(env, tmp_path, 4_000)
        job = submit(cluster, env, values)
        eventually(lambda: len(group.looks) > 2, "a reader saw two checkpoints")
        savepoint = job.stop(target=str(tmp_path / "savepoint"))
        first = us.read_group(group.where, "both")
        env = us.Environment({**values, "parallelism.default": "1"})
        group.build(env, tmp_path, None)
        submit(cluster, env, values, savepoint).result(timeout_s=WAIT_S)
    group.assert_whole()
    last = us.read_group(group.where, "both")
    assert last.number > first.number
    assert (last.lineage, last.job == first.job) == (first.lineage, False)
