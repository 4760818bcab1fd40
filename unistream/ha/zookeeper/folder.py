"""The folder of a cluster: made by the first master, and refused if it is of anything else."""

from __future__ import annotations

import time
from typing import Final

import msgspec
from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

from unistream.base.config import HA_CLUSTER_ID, ZOOKEEPER_ACL, ZOOKEEPER_ROOT
from unistream.base.errors import UNDECODABLE, ConfigError, Unreachable
from unistream.ha.marker import PRODUCT, ClusterMarker
from unistream.ha.zookeeper.client import FOLLOWS, NO_ANSWER
from unistream.ha.zookeeper.ports import ZooKeeper
from unistream.ha.zookeeper.settings import ZooKeeperSettings

FORMAT: Final = 1
_ATTEMPTS_MAX: Final = 20  # several masters may start together


def prepare(client: ZooKeeper, settings: ZooKeeperSettings) -> None:
    """Makes the folder of the cluster, or checks the one that is there.

    Raises:
        ConfigError: it is foreign, of a newer version, or accessible to others. Nothing was changed.
        Unreachable: ZooKeeper does not answer.
    """
    for _ in range(_ATTEMPTS_MAX):
        if _is_ready(client, settings) or _made(client, settings):
            return
    raise Unreachable(f"{client}: the folder {settings.layout.folder} could not be made")


def _is_ready(client: ZooKeeper, settings: ZooKeeperSettings) -> bool:
    """False: there is nothing yet."""
    layout = settings.layout
    # in this order: a master makes the marker and what is next to it at once, so who has seen any of it finds
    # the marker, also if another master was faster between the two questions
    others = client.children(layout.folder)
    marker = client.value(layout.marker)
    if marker is not None:
        _check_marker(client, settings, marker[0])
        _check_access(client, settings)
        return True
    if others:
        raise ConfigError(
            f"{client} has data in {layout.folder} that unistream did not write; choose another "
            f"{HA_CLUSTER_ID.key} or {ZOOKEEPER_ROOT.key}"
        )
    return False


def _check_marker(client: ZooKeeper, settings: ZooKeeperSettings, data: bytes) -> None:
    where = f"{client} has data in {settings.layout.folder}"
    another = f"choose another {HA_CLUSTER_ID.key} or {ZOOKEEPER_ROOT.key}"
    try:
        marker = msgspec.json.decode(data, type=ClusterMarker)
    except UNDECODABLE:
        marker = ClusterMarker(product="", format=0)
    if marker.product != PRODUCT:
        raise ConfigError(f"{where} that unistream did not write; {another}")
    if marker.format > FORMAT:
        raise ConfigError(
            f"{where} of format {marker.format}, which a newer unistream wrote; this one reads formats up to "
            f"{FORMAT}: install the newer one, or {another}"
        )


def _check_access(client: ZooKeeper, settings: ZooKeeperSettings) -> None:
    acls, _ = client.read(lambda kazoo: kazoo.get_acls_async(settings.layout.folder))
    if settings.is_private and any(acl.id.scheme == "world" for acl in acls):
        raise ConfigError(
            f"{client} lets everyone access {settings.layout.folder}, and {ZOOKEEPER_ACL.key} is creator; "
            f"choose another {HA_CLUSTER_ID.key}, or let {ZOOKEEPER_ACL.key} be open"
        )


def _made(client: ZooKeeper, settings: ZooKeeperSettings) -> bool:
    """All at once; False: another master was faster."""
    layout, deadline_s = settings.layout, time.monotonic() + settings.request_s

    def ask(_: KazooClient) -> object:
        transaction = client.transaction()
        _build(transaction, missing)
        transaction.create(layout.marker, msgspec.json.encode(ClusterMarker(PRODUCT, FORMAT)))
        transaction.create(layout.election, b"")
        return transaction.commit_async()

    folders = _with_parents(layout.folder)
    missing = [path for path, stat in zip(folders, client.stats(folders), strict=True) if stat is None]
    try:
        results = client.once(ask, deadline_s)
    except NO_ANSWER as error:
        raise Unreachable(f"{client} did not confirm that it made {layout.folder}; start again") from error
    for result in results:
        if isinstance(result, NodeExistsError | NoNodeError):
            return False
    for result in results:
        if isinstance(result, KazooException) and not isinstance(result, FOLLOWS):
            raise client.translated(result) from result
    return True


def _build(transaction: TransactionRequest, folders: list[str]) -> None:
    for folder in folders:
        transaction.create(folder, b"")


def _with_parents(path: str) -> list[str]:
    """Itself and all above it.

    >>> _with_parents("/a/b")
    ['/a', '/a/b']
    """
    parts = path[1:].split("/")
    return ["/" + "/".join(parts[: n + 1]) for n in range(len(parts))]
