"""Where the submitted jobs of a cluster are stored, and that no other cluster stores its own there.

    <high-availability.storageDir>/<high-availability.cluster-id>/
        owner                 which cluster it belongs to; its HA store has the same value
        artifacts/            submitted jobs and their code
        checkpoints/          of jobs whose configuration names no folder
        savepoints/

A cluster removes the artifacts that its own jobs do not need, so two clusters in one folder would remove each
other's.
"""

from __future__ import annotations

import os
import stat
import uuid
from typing import Final

import msgspec

from unistream.base import durable_files
from unistream.base.config import HA_CLUSTER_ID, HA_STORAGE_DIR, Configuration
from unistream.base.errors import UNDECODABLE, ConfigError, CorruptSnapshot, OutcomeUnknown, Transient
from unistream.base.object_stores import is_s3
from unistream.base.releases import Release, own_release, refusal
from unistream.master.store import JobStore
from unistream.port.ha import HaStore, LeaderInfo
from unistream.storage.durable_local import NotWritten
from unistream.storage.location import Location, open_location, transient
from unistream.storage.probe import check_writable

NAME: Final = "storage"
OWNER: Final = "owner"


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What the HA store says of the folder. `url`: of the folder; "": the one of the cluster's only master.
    `owner`: what is in its file `owner`."""

    url: str
    owner: str = ""


def job_folder(config: Configuration) -> str | None:
    """URL of the folder of this cluster in the storage; None: it is in that of its only master.

    Raises:
        ConfigError: not a URL of a storage.
    """
    root = config.find(HA_STORAGE_DIR)
    return None if root is None else open_location(root).below(config.get(HA_CLUSTER_ID)).url


def check_leader(leader: LeaderInfo | None, url: str | None) -> None:
    """Refuses a master that begins while another one leads with whose jobs it could not go on.

    Args:
        leader: None: nobody leads.
        url: Of `job_folder`.

    Raises:
        ConfigError: the leader stores its jobs elsewhere, or is of another version.
    """
    if leader is not None:
        whom = f"the leader of this cluster ({leader.rest_url or leader.cluster})"
        why = refusal(own_release(), Release(leader.version), who="this master", whom=whom)
        if why is not None:
            raise ConfigError(
                f"{why}; jobs go to another series by savepoints ('unistream cluster stop --savepoint')"
            )
    if leader is not None and leader.jobs and leader.jobs != url:
        raise ConfigError(
            f"the leader of this cluster ({leader.rest_url or leader.cluster}) stores its jobs in "
            f"{leader.jobs}, and {HA_STORAGE_DIR.key} names {url or 'none'}: all masters of a cluster need "
            "the same"
        )


def claim(store: HaStore, jobs: JobStore, url: str | None) -> None:
    """Makes the folder the one of this cluster. Repeated by each leader, and after a crash at any point.

    Args:
        store: Of the leader.
        jobs: Of the leader.
        url: Of `job_folder`.

    Raises:
        ConfigError: it is the folder of another cluster, or this one has jobs elsewhere, or the object store
            has no conditional writes. Nothing was changed.
        Transient, Unreachable, Fenced, OutcomeUnknown: as of the store and of the storage; nobody knows yet.
    """
    there = store.read(NAME)
    known = None if there is None else _decoded(there.value)
    if known is None or known.url != (url or ""):
        if known is not None and jobs.unfinished():
            raise ConfigError(
                f"the jobs of this cluster are stored in {known.url or 'the folder of its only master'}, and "
                f"{HA_STORAGE_DIR.key} names {url or 'none'}: set it back, or give this cluster another "
                f"{HA_CLUSTER_ID.key}"
            )
        known = Claim(url=url or "", owner="" if url is None else uuid.uuid4().hex)
        value = msgspec.json.encode(known)
        if there is None:
            store.create(NAME, value)
        else:
            store.replace(NAME, value, there.version)
    if url is not None:
        folder = open_location(url)
        if is_s3(url):
            check_writable(folder)  # before a store without conditional writes replaces another's `owner`
        _own(folder, known.owner)


def _own(folder: Location, owner: str) -> None:
    file = folder.below(OWNER)
    with transient(f"cannot use {folder.url} for the jobs of this cluster"):
        folder.fs.makedirs(folder.path, exist_ok=True)
        if folder.is_local:
            _close_to_others(folder.path)
    try:
        file.fs.pipe_file(file.path, owner.encode(), mode="create")
    except FileExistsError:
        found = file.read().decode(errors="replace")
        if found != owner:
            raise ConfigError(
                f"{folder.url} has the jobs of another cluster; choose another {HA_STORAGE_DIR.key} or "
                f"{HA_CLUSTER_ID.key}"
            ) from None
    except NotWritten as error:
        raise Transient(f"cannot use {folder.url} for the jobs of this cluster: {error}") from error
    except OSError as error:
        raise OutcomeUnknown(f"{file.url} may or may not have been written: {error}") from error


def _close_to_others(path: str) -> None:
    """Jobs and state of a version that left it to the umask who may read them are in it, too."""
    found = os.stat(path)
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
        os.chmod(path, durable_files.PRIVATE_FOLDER)


def _decoded(value: bytes) -> Claim:
    try:
        return msgspec.json.decode(value, type=Claim)
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"the HA store does not say where the jobs are stored: {error}") from error
