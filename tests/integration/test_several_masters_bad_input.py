"""Masters that are started wrongly, stored values that are not right, workers at the wrong place."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.eventually import eventually
from tests.integration.copied_topic import Flow
from tests.integration.several_masters import (
    OF_HA_MATRIX,
    ROOT,
    WAIT_S,
    Master,
    Masters,
    await_job,
    is_running,
    masters_in,
)
from tests.integration.zookeeper_leaders import plain_client
from unistream.base.errors import AlreadyEnded
from unistream.model.stored_job import JobPointer, decode_stored

QUORUM = "high-availability_zookeeper_quorum"
STORAGE = "high-availability_storageDir"
CLUSTER = "high-availability_cluster-id"
PATH_ROOT = "high-availability_zookeeper_path_root"
CREDENTIALS = "high-availability_zookeeper_client_authorization"
ACL = "high-availability_zookeeper_client_acl"


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: str) -> Iterator[Masters]:
    with masters_in(tmp_path, zookeeper) as cluster:
        yield cluster


@pytest.fixture
def closed(tmp_path: Path, zookeeper: str) -> Iterator[Masters]:
    """What it has in ZooKeeper is for its own credentials only."""
    own = {"high-availability.zookeeper.client.authorization": "digest:team:secret"}
    acl = {"high-availability.zookeeper.client.acl": "creator"}
    with masters_in(tmp_path, zookeeper, options=own | acl) as cluster:
        yield cluster


@pytest.fixture
def flow(tmp_path: Path, kafka: str, topic: str) -> Iterator[Flow]:
    with Flow(tmp_path, kafka, topic) as flow:
        yield flow


def led(cluster: Masters, **options: str) -> Master:
    """A master that leads."""
    master = cluster.start("leader", **options)
    cluster.await_leader(master)
    return master


def named(cluster: Masters) -> dict[str, str]:
    """The options that name the cluster, besides where ZooKeeper is."""
    return {key: cluster.options[key] for key in cluster.options if "root" in key or "cluster-id" in key}


def ends(master: Master) -> str:
    """What it says when it ends by itself, as a user's mistake; warnings before it are not meant."""
    assert master.wait() == 2, master.err
    return master.err.strip().splitlines()[-1]


# --- options that do not fit --------------------------------------------------------------------------


def test_two_masters_do_not_share_a_folder(cluster: Masters, tmp_path: Path) -> None:
    first = led(cluster)
    said = cluster.refused("second", workdir=str(tmp_path / "work-leader"))
    assert said.startswith("error: ")
    assert str(tmp_path / "work-leader") in said
    assert first.lives
    assert cluster.leads(first)


def test_a_cluster_of_another_root_is_refused_the_folder_of_this_one(cluster: Masters) -> None:
    led(cluster)
    other = cluster.start("other", **{PATH_ROOT: f"{ROOT}/elsewhere"})
    said = ends(other)
    assert said.startswith(
        f"error: {(cluster.folder / 'ha' / cluster.id).as_uri()} has the jobs of another cluster"
    )


@pytest.mark.kafka
def test_a_master_with_another_folder_for_jobs_is_refused(
    cluster: Masters, flow: Flow, tmp_path: Path
) -> None:
    elsewhere = {STORAGE: (tmp_path / "elsewhere").as_uri()}
    first = led(cluster)
    with cluster.client() as client:
        job = client.submit(flow.request()).job_id
        flow.await_commits()
        said = cluster.refused("early", **elsewhere)
        assert said.startswith(
            f"error: the leader of this cluster ({first.urls[-1]}) stores its jobs in file:"
        )
        first.end(signal.SIGKILL)
        eventually(lambda: "/leader" not in cluster.stored(), "nobody leads", WAIT_S, 0.1)
        said = ends(cluster.start("late", **elsewhere))
        assert said.startswith("error: the jobs of this cluster are stored in file:")
        assert "high-availability.storageDir names" in said
        cluster.await_leader(cluster.start("right"))
        await_job(client, job, is_running, "it runs")
        flow.assert_exact()
    assert not (tmp_path / "elsewhere" / cluster.id).exists(), "nothing was changed"


# --- what is in ZooKeeper -----------------------------------------------------------------------------


def foreign(kazoo: KazooClient, folder: str) -> None:
    kazoo.create(f"{folder}/of-somebody", b"x", makepath=True)


def foreign_marker(kazoo: KazooClient, folder: str) -> None:
    kazoo.create(f"{folder}/cluster", b"<xml/>", makepath=True)


def newer_marker(kazoo: KazooClient, folder: str) -> None:
    kazoo.create(f"{folder}/cluster", b'{"product": "unistream", "format": 99}', makepath=True)


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        pytest.param(
            foreign, "that unistream did not write", id="nodes of another program", marks=OF_HA_MATRIX
        ),
        pytest.param(
            foreign_marker,
            "that unistream did not write",
            id="a marker of another program",
            marks=OF_HA_MATRIX,
        ),
        pytest.param(newer_marker, "of format 99, which a newer unistream wrote", id="of a newer version"),
    ],
)
def test_a_folder_in_zookeeper_that_is_not_of_this_version_is_refused(
    cluster: Masters, prepare: Callable[[KazooClient, str], None], says: str
) -> None:
    with plain_client(cluster.quorum) as kazoo:
        prepare(kazoo, cluster.znode)
    before = cluster.stored()
    said = cluster.refused("leader")
    assert said.startswith("error: ZooKeeper at ")
    assert says in said
    assert "choose another high-availability.cluster-id" in said
    assert cluster.stored() == before


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        pytest.param(
            "storage",
            b"unistream 2\nx",
            "a newer version of unistream",
            id="of a newer version",
            marks=OF_HA_MATRIX,
        ),
        pytest.param("jobs/x/job", b"<xml/>", "another program", id="of another program", marks=OF_HA_MATRIX),
        pytest.param("results/x", b'unistream 1\n{"format": 99}', "newer", id="a result of a newer version"),
    ],
)
def test_a_value_in_zookeeper_that_is_not_of_this_version_ends_the_master(
    cluster: Masters, name: str, value: bytes, says: str
) -> None:
    first = led(cluster)
    assert first.end() == 0
    with plain_client(cluster.quorum) as kazoo:
        path = f"{cluster.znode}/{name}"
        kazoo.ensure_path(path)
        kazoo.set(path, value)
    said = ends(cluster.start("second"))
    assert said.startswith("error: ")
    assert says in said


def test_a_chroot_that_is_not_there_is_named(cluster: Masters) -> None:
    said = cluster.refused("leader", **{QUORUM: f"{cluster.quorum}/nowhere"})
    assert said.startswith("error: ZooKeeper at ")
    assert said.endswith("has no folder '/nowhere'; create it, or correct high-availability.zookeeper.quorum")
    listed = cluster.command("list", "list", "-m", f"zookeeper://{cluster.quorum}/nowhere")
    assert listed.wait() == 2, listed.err
    assert "has no folder '/nowhere'" in listed.err
    assert len(listed.err.strip().splitlines()) == 1


@OF_HA_MATRIX
def test_a_cluster_with_credentials_is_closed_to_those_without(closed: Masters) -> None:
    led(closed)
    for name, other in (
        ("none", {CREDENTIALS: None, ACL: None}),
        ("another", {CREDENTIALS: "digest:team:wrong"}),
    ):
        said = closed.refused(name, **other)
        assert said.startswith("error: ZooKeeper at ")
        assert "high-availability.zookeeper.client" in said
        assert "secret" not in said
        assert "wrong" not in said
    listed = closed.command("list", "list", "-m", f"zookeeper://{closed.quorum}", defines=named(closed))
    assert listed.wait() == 2, listed.err
    assert len(listed.err.strip().splitlines()) == 1
    assert closed.start("second").lives


# --- what is in the storage ---------------------------------------------------------------------------


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("which", "how"),
    [
        pytest.param("stored", "altered", id="its description is altered"),
        pytest.param("stored", "missing", id="its description is missing", marks=OF_HA_MATRIX),
        pytest.param("artifact", "altered", id="its code is altered", marks=OF_HA_MATRIX),
        pytest.param("artifact", "missing", id="its code is missing", marks=OF_HA_MATRIX),
    ],
)
def test_a_job_whose_files_are_damaged_is_suspended_and_others_go_on(
    cluster: Masters, flow: Flow, which: str, how: str
) -> None:
    first, second = cluster.pair()
    with cluster.client() as client:
        good = client.submit(flow.request("good")).job_id
        bad = client.submit(flow.copy("other").request("bad")).job_id
        flow.await_commits()
        value, _ = cluster.stored()[f"/jobs/{bad}/job"]
        pointer = decode_stored(value.split(b"\n", 1)[1], JobPointer, "job")
        damage(cluster.folder / "ha" / cluster.id / "artifacts" / getattr(pointer, which), how)
        first.end(signal.SIGKILL)
        cluster.await_leader(second)
        await_job(client, good, is_running, "the good one runs")
        info = await_job(client, bad, lambda info: info.state == "SUSPENDED", "the bad one is suspended")
        assert info.failure is not None
        assert getattr(pointer, which) in info.failure.message
        with pytest.raises(AlreadyEnded, match="is SUSPENDED: "):
            client.client(bad).savepoint()
        client.client(bad).cancel()
        await_job(client, bad, lambda info: info.state == "CANCELED", "it is given up")
        flow.assert_exact()


def damage(file: Path, how: str) -> None:
    assert file.exists()
    if how == "missing":
        file.unlink()
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.chmod(0o600)
        file.write_bytes(content)


# --- workers ------------------------------------------------------------------------------------------


def test_a_worker_of_a_cluster_that_starts_its_workers_itself_ends_with_a_sentence(cluster: Masters) -> None:
    led(cluster)
    worker = cluster.command(
        "worker", "taskmanager", "start", "-m", f"zookeeper://{cluster.quorum}", defines=named(cluster)
    )
    assert worker.wait() == 2, worker.err
    (sentence,) = worker.err.strip().splitlines()
    assert sentence.endswith(
        "starts its workers itself; workers of users join a cluster that was started with --target standalone"
    )


@OF_HA_MATRIX
def test_a_leader_that_another_version_has_published_is_named(cluster: Masters) -> None:
    with plain_client(cluster.quorum) as kazoo:
        kazoo.create(f"{cluster.znode}/leader", json.dumps([1]).encode(), makepath=True)
    listed = cluster.command("list", "list", "-m", f"zookeeper://{cluster.quorum}", defines=named(cluster))
    eventually(lambda: not listed.lives, "it ends", WAIT_S)
    assert listed.wait() == 2, listed.err
    assert "does not say where a leader is" in listed.err
    assert len(listed.err.strip().splitlines()) == 1
