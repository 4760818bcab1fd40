"""What a cluster says of itself: leaders, places, versions and its configuration, without a secret."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.eventually import eventually
from tests.unit.master.database_file import give_back, take_away
from tests.unit.master.served_cluster import Api
from unistream.base.config import Configuration
from unistream.base.ids import ClusterId, LeaderEpoch
from unistream.master.shown.cluster_info import ClusterPlaces, options_of, terms_of, zookeeper_info
from unistream.port.ha import ContenderInfo
from unistream.port.metadata import EpochRecord

SECRET = "hunter2"
GIVEN = {
    "high-availability.zookeeper.client.authorization": f"digest:user:{SECRET}",
    "metadata.url": f"postgresql://user:{SECRET}@db/history",
    "spark.ssl.keyPassword": SECRET,
    "parallelism.default": "4",
    "rest.address": "127.0.0.1",
}


@pytest.fixture
def api(make_cluster: Callable[..., Any]) -> Iterator[Api]:
    leads = [ContenderInfo(process="a-1", leads=True), ContenderInfo(process="b-2", leads=False)]
    places = ClusterPlaces(
        folder="/folder", jobs="/jobs", metadata=GIVEN["metadata.url"], contenders=lambda: leads
    )
    api = Api(make_cluster(config=GIVEN, places=places))
    yield api
    api.close()


def test_what_a_cluster_says_of_itself(api: Api) -> None:
    cluster = api.cluster.dispatcher
    eventually(lambda: api.get("/unistream/cluster")["leaders"], "its leadership is recorded")
    answer = api.http.get("/unistream/cluster")
    assert SECRET not in answer.text
    shown = answer.json()
    assert (shown["cluster"], shown["target"], shown["name"]) == (cluster.cluster, "mini", "default")
    assert shown["leads_since_ms"] == cluster.started_ms <= shown["now_ms"]
    assert [one["process"] for one in shown["contenders"]] == ["a-1", "b-2"]
    assert shown["zookeeper"] is None, "it has one master"
    assert shown["metadata"]["url"] == "postgresql://user:****@db/history"
    assert [one["epoch"] for one in shown["leaders"]] == [shown["epoch"]]
    assert shown["checkpoints"] == str(api.cluster.root / "checkpoints")
    assert shown["versions"].keys() >= {"python", "unistream", "arrow", "spark"}
    disks = {one["what"]: one["total_bytes"] for one in shown["disks"]}
    assert disks.keys() == {"checkpoints", "savepoints", "jobs", "master"}
    assert disks["checkpoints"] == shutil.disk_usage(api.cluster.root).total
    by_key = {one["key"]: (one["value"], one["origin"]) for one in shown["options"]}
    assert by_key["parallelism.default"] == ("4", "given")
    assert by_key["spark.ssl.keyPassword"] == ("****", "given")


@pytest.mark.parametrize(
    ("given", "key", "wanted"),
    [
        pytest.param({}, "parallelism.default", ("1", "default"), id="default"),
        pytest.param({}, "high-availability.zookeeper.quorum", (None, "unset"), id="without any value"),
        pytest.param({}, "metadata.url", ("sqlite:////h/m.db", "environment"), id="by a variable"),
        pytest.param({"metadata.url": "sqlite:////x"}, "metadata.url", ("sqlite:////x", "given"), id="given"),
        pytest.param({}, "execution.checkpointing.dir", ("/c", "derived"), id="in its folder"),
        pytest.param({"spark.master": "yarn"}, "spark.master", ("yarn", "given"), id="of Spark"),
        pytest.param({"spark.x.token": SECRET}, "spark.x.token", ("****", "given"), id="a secret of Spark"),
        pytest.param(
            {"high-availability.zookeeper.client.authorization": "${env:ZK}"},
            "high-availability.zookeeper.client.authorization",
            ("${env:ZK}", "given"),
            id="a reference is no secret",
        ),
    ],
)
def test_where_a_value_comes_from(given: dict[str, str], key: str, wanted: tuple[str | None, str]) -> None:
    places = ClusterPlaces(metadata="sqlite:////h/m.db", from_environment=True)
    shown = options_of(Configuration(given), places=places, checkpoints="/c", savepoints="/s")
    assert {one.key: (one.value, one.origin) for one in shown}[key] == wanted
    assert all(one.doc for one in shown if not one.key.startswith("spark."))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param({}, None, id="one master"),
        pytest.param(
            {
                "high-availability.type": "zookeeper",
                "high-availability.zookeeper.quorum": "a:1,b:2",
                "high-availability.cluster-id": "lines",
            },
            ("a:1,b:2", "/unistream/lines", False),
            id="several",
        ),
    ],
)
def test_zookeeper(given: dict[str, str], wanted: tuple[str, str, bool] | None) -> None:
    found = zookeeper_info(Configuration(given), leads=False)
    assert (None if found is None else (found.servers, found.folder, found.connected)) == wanted


def test_only_its_own_leaders_are_shown() -> None:
    records = [
        EpochRecord(epoch=LeaderEpoch(n), cluster=ClusterId(of), granted_ms=n, process=of)
        for n, of in ((3, "a"), (9, "b"), (2, "a"))
    ]
    assert [term.epoch for term in terms_of(records, ClusterId("a"))] == [3, 2]


def test_while_the_database_is_away_its_leaders_are_not_known(api: Api) -> None:
    file = api.cluster.root / "metadata.db"
    moved = take_away(file)
    try:
        assert api.get("/unistream/cluster")["leaders"] is None
    finally:
        give_back(file, moved)
