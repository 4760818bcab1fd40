"""A cluster as its leader sees it now: the shell around `cluster_info`."""

from __future__ import annotations

import logging

from unistream.base.config import HA_CLUSTER_ID, HA_TYPE, Configuration
from unistream.base.errors import Unreachable
from unistream.base.process_mark import process_name
from unistream.base.secrets import redacted
from unistream.master import shown as views
from unistream.master.service import ClusterServices, MasterPorts
from unistream.storage.room import room_at

logger = logging.getLogger(__name__)


def cluster_info(
    config: Configuration, services: ClusterServices, ports: MasterPorts, since_ms: int
) -> views.ClusterInfo:
    """`since_ms`: when the dispatcher of these ports began to lead."""
    places, catalogue = services.places, ports.catalogue
    contenders = places.contenders()
    return views.ClusterInfo(
        now_ms=services.clock.wall_ms(),
        cluster=catalogue.cluster,
        name=config.get(HA_CLUSTER_ID),
        target=services.target,
        ha_type=config.get(HA_TYPE),
        process=process_name(),
        epoch=ports.jobs.epoch,
        leads_since_ms=since_ms,
        contenders=None if contenders is None else tuple(contenders),
        zookeeper=views.zookeeper_info(config, leads=ports.leadership.leads),
        leaders=_leaders(services, ports),
        folder=places.folder,
        jobs_folder=redacted(places.jobs),
        checkpoints=redacted(services.checkpoint_root),
        savepoints=redacted(services.savepoint_root),
        metadata=views.MetadataInfo(url=redacted(places.metadata), health=catalogue.health()),
        disks=_disks(services),
        goes_on=services.goes_on,
        versions=views.versions(),
        options=views.options_of(
            config, places=places, checkpoints=services.checkpoint_root, savepoints=services.savepoint_root
        ),
    )


def _disks(services: ClusterServices) -> tuple[views.DiskShown, ...]:
    """Where nothing is kept, nothing is said."""
    kept: tuple[tuple[views.DiskOf, str], ...] = (
        ("checkpoints", services.checkpoint_root),
        ("savepoints", services.savepoint_root),
        ("jobs", services.places.jobs),
        ("master", services.places.folder),
    )
    return tuple(_disk(what, url) for what, url in kept if url)


def _disk(what: views.DiskOf, url: str) -> views.DiskShown:
    room = room_at(url)
    free, total = (None, None) if room is None else room
    return views.DiskShown(what=what, folder=redacted(url), free_bytes=free, total_bytes=total)


def _leaders(services: ClusterServices, ports: MasterPorts) -> tuple[views.LeaderTerm, ...] | None:
    """None: the database is away."""
    if ports.catalogue.health().reason is not None:
        return None  # nobody waits for it
    try:
        return views.terms_of(services.metadata.epochs(), ports.catalogue.cluster)
    except Unreachable as error:
        logger.warning("event=leaders_not_read reason=%r", str(error))
        return None
