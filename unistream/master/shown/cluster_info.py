"""What a cluster is: who leads it, where it keeps what, with which versions and which configuration."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Literal, TypeAlias

import msgspec

from unistream.base.config import (
    CHECKPOINT_DIR,
    HA_CLUSTER_ID,
    HA_STORAGE_DIR,
    HA_TYPE,
    METADATA_URL,
    OPTIONS,
    SAVEPOINT_DIR,
    ZOOKEEPER_QUORUM,
    ZOOKEEPER_ROOT,
    Configuration,
)
from unistream.base.ids import ClusterId, LeaderEpoch
from unistream.base.secrets import redacted
from unistream.model.job_info import MetadataHealth
from unistream.port.ha import ContenderInfo
from unistream.port.metadata import EpochRecord

LEADERS_SHOWN_MAX: Final = 20
_PACKAGES: Final = {
    "unistream": "unistream",
    "arrow": "pyarrow",
    "spark": "pyspark",
    "kafka": "kafka-python",
    "delta": "deltalake",
    "iceberg": "pyiceberg",
    "zookeeper client": "kazoo",
    "sqlalchemy": "sqlalchemy",
}

Origin: TypeAlias = Literal["given", "environment", "derived", "default", "unset"]
"""Where the value of an option is from: -D or the program that started the cluster; a variable of its
environment; other options, or its folder; the option itself. Unset: it has none."""

DiskOf: TypeAlias = Literal["checkpoints", "savepoints", "jobs", "master"]
"""What a cluster keeps."""


class OptionShown(msgspec.Struct, frozen=True, kw_only=True):
    """An option with its value as text; null: it has none. Secrets are hidden. `doc`: "": it is Spark's."""

    key: str
    value: str | None
    origin: Origin
    doc: str


class ZooKeeperInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`servers` as they are configured; `folder`: of the cluster; `connected`: this master may decide now."""

    servers: str
    folder: str
    connected: bool


class MetadataInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The database of the history. `url`: without its password."""

    url: str
    health: MetadataHealth


class DiskShown(msgspec.Struct, frozen=True, kw_only=True):
    """Room where the cluster keeps something. `free_bytes`, `total_bytes`: of the disk of `folder`, as the
    master may use it; null: it is no local folder, as an object store, or is not to be read now."""

    what: DiskOf
    folder: str
    free_bytes: int | None
    total_bytes: int | None


class LeaderTerm(msgspec.Struct, frozen=True, kw_only=True):
    """A time of leadership. `ended_ms` null: it leads, or was killed."""

    epoch: LeaderEpoch
    process: str
    granted_ms: int
    ended_ms: int | None
    reason: str | None


class ClusterInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What GET /unistream/cluster answers.

    Attributes:
        cluster: Its id, the same for all of its leaders. `name`: high-availability.cluster-id.
        target: Where its workers run.
        process: The one that leads: host and pid. `epoch`: of it. `leads_since_ms`: since then.
        contenders: Who leads and who stands by, in the order in which they will lead. Null: ZooKeeper does
            not answer now.
        zookeeper: Null: the cluster has one master.
        leaders: Who led before, the newest first. Null: the metadata database does not answer.
        folder: Of this master, on its machine; "": it is not known.
        jobs_folder: Where submitted jobs are, for the next leader.
        checkpoints, savepoints: Where those of jobs are that name no other place.
        disks: The room for what the cluster keeps.
        goes_on: The command that starts the cluster again; "": its jobs end with it.
        versions: By name; null: it is not installed where the master runs.
        options: Its configuration, in the order of the reference.
    """

    now_ms: int
    cluster: ClusterId
    name: str
    target: str
    ha_type: str
    process: str
    epoch: LeaderEpoch
    leads_since_ms: int
    contenders: tuple[ContenderInfo, ...] | None
    zookeeper: ZooKeeperInfo | None
    leaders: tuple[LeaderTerm, ...] | None
    folder: str
    jobs_folder: str
    checkpoints: str
    savepoints: str
    metadata: MetadataInfo
    disks: tuple[DiskShown, ...] = ()
    goes_on: str
    versions: dict[str, str | None]
    options: tuple[OptionShown, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlaces:
    """Where a master keeps what, and who else takes part, as the program that starts it knows it.

    Attributes:
        folder: Of the master.
        jobs: URL of the folder of submitted jobs.
        metadata: URL of the database; it may have a password. `from_environment`: the home folder that it is
            in was named by a variable.
        contenders: See `port.ha.LeaderElection.contenders`.
    """

    folder: str = ""
    jobs: str = ""
    metadata: str = ""
    from_environment: bool = False
    contenders: Callable[[], Sequence[ContenderInfo] | None] = tuple


@cache
def versions() -> dict[str, str | None]:
    """The versions of Python and of the libraries that this installation runs with; None: it is not
    installed."""
    return {"python": platform.python_version(), **{name: _version(of) for name, of in _PACKAGES.items()}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def zookeeper_info(config: Configuration, *, leads: bool) -> ZooKeeperInfo | None:
    """None: the cluster has one master."""
    if config.get(HA_TYPE) != "zookeeper":
        return None
    root = config.get(ZOOKEEPER_ROOT).rstrip("/")
    servers = config.to_dict().get(ZOOKEEPER_QUORUM.key, "")
    return ZooKeeperInfo(servers=servers, folder=f"{root}/{config.get(HA_CLUSTER_ID)}", connected=leads)


def terms_of(records: Sequence[EpochRecord], cluster: ClusterId) -> tuple[LeaderTerm, ...]:
    """The leaders that one cluster has had, the newest first."""
    own = [record for record in records if record.cluster == cluster][:LEADERS_SHOWN_MAX]
    return tuple(
        LeaderTerm(
            epoch=record.epoch,
            process=record.process,
            granted_ms=record.granted_ms,
            ended_ms=record.ended_ms,
            reason=record.reason,
        )
        for record in own
    )


def options_of(
    config: Configuration, *, places: ClusterPlaces, checkpoints: str, savepoints: str
) -> tuple[OptionShown, ...]:
    """Every option with its value and where that is from; then what was given for Spark.

    Args:
        config: Of the cluster.
        places: Where it keeps what.
        checkpoints: Where they are if no option says it.
        savepoints: The same.
    """
    given = config.to_dict()
    derived: Mapping[str, tuple[str, Origin]] = {
        METADATA_URL.key: (places.metadata, "environment" if places.from_environment else "derived"),
        CHECKPOINT_DIR.key: (checkpoints, "derived"),
        SAVEPOINT_DIR.key: (savepoints, "derived"),
        HA_STORAGE_DIR.key: (places.jobs, "derived"),
    }
    shown = [_option(key, given, derived) for key in OPTIONS]
    foreign = sorted(given.keys() - OPTIONS.keys())
    return (*shown, *(_shown(key, given[key], "given") for key in foreign))


def _option(key: str, given: Mapping[str, str], derived: Mapping[str, tuple[str, Origin]]) -> OptionShown:
    if key in given:
        return _shown(key, given[key], "given")
    value, origin = derived.get(key, ("", "unset"))
    if value:
        return _shown(key, value, origin)
    default = OPTIONS[key].default
    return _shown(key, default, "unset" if default is None else "default")


def _shown(key: str, value: str | None, origin: Origin) -> OptionShown:
    option = OPTIONS.get(key)
    return OptionShown(
        key=key, value=redacted(value, key), origin=origin, doc="" if option is None else option.doc
    )
