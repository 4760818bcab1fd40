"""The keys of a cluster, next to its jobs: its first leader makes them.

    security/secret      32 random bytes, in hex: seals what lies where others may write
    security/authority   signs the certificates of its processes; made with the first server beyond loopback
    security/sealing     all jobs that are stored have a seal since: one without is none of this cluster

Who has them can make what the cluster takes for its own, as who can write its jobs can.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

import msgspec
from fsspec import AbstractFileSystem

from unistream.base.errors import UNDECODABLE, ConfigError, CorruptSnapshot
from unistream.storage.kept_once import FOLDER, kept_once, replace_kept
from unistream.storage.location import open_location
from unistream.trust.authority import Authority, AuthorityRecord, new_authority
from unistream.trust.seals import SealKey

SECRET_BYTES: Final = 32
SECRET: Final = "secret"  # noqa: S105  # a file's name
AUTHORITY: Final = "authority"
SEALING: Final = "sealing"


def cluster_secret(
    root_url: str, fs: AbstractFileSystem | None = None, *, key: SealKey | None = None
) -> bytes:
    """The secret in the folder of a cluster; all leaders get the same one. `key`: seals it.

    Raises:
        ConfigError: the folder cannot be written, or what is there is sealed with another key.
        CorruptSnapshot: what is there is no secret; nothing makes another one, since what was sealed would
            count no more.
        Transient, OutcomeUnknown: the store does not answer.
    """
    content = kept_once(
        root_url, SECRET, lambda: secrets.token_bytes(SECRET_BYTES).hex().encode(), key=key, fs=fs
    )
    try:
        secret = bytes.fromhex(content.decode("ascii"))
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise CorruptSnapshot(
            f"{_url(root_url, SECRET, fs)} is no secret of a cluster; put the right one back, or remove it: "
            "then all tokens are void, and no stored job is run"
        )
    return secret


def begin_sealing(
    root_url: str,
    seal_all: Callable[[], None],
    *,
    key: SealKey | None = None,
    fs: AbstractFileSystem | None = None,
) -> None:
    """Calls `seal_all`, unless a leader of this cluster has done so.

    Raises:
        ConfigError: the folder cannot be written.
        CorruptSnapshot: what is there was sealed with another key.
        Transient, OutcomeUnknown: the store does not answer.
    """

    def sealed() -> bytes:
        seal_all()
        return b"all jobs have a seal"

    kept_once(root_url, SEALING, sealed, key=key, fs=fs)


def cluster_authority(
    root_url: str,
    *,
    cluster: str,
    now_ms: int,
    key: SealKey | None = None,
    fs: AbstractFileSystem | None = None,
) -> Authority:
    """The authority of a cluster; all leaders get the same one.

    Args:
        root_url: The folder of the cluster.
        cluster: Its id, for people who look at a certificate.
        now_ms: The time.
        key: Seals what is made.
        fs: The store, instead of the one that the URL names.

    Raises:
        ConfigError: the folder cannot be written; or others can read it, and there is no `key`.
        CorruptSnapshot: what is there is no authority.
        Transient, OutcomeUnknown: the store does not answer.
    """
    if key is None and not open_location(root_url, fs).is_local:
        raise ConfigError(
            f"the keys of this cluster lie in {root_url}, which others may read: seal them with a secret of "
            "32 characters or more, which all its masters have, in a file that security.secret-file names, "
            "or in UNISTREAM_SECRET ('openssl rand -hex 32' makes one)"
        )
    content = kept_once(
        root_url,
        AUTHORITY,
        lambda: msgspec.json.encode(new_authority(cluster, now_ms)),
        key=key,
        fs=fs,
    )
    try:
        return Authority(msgspec.json.decode(content, type=AuthorityRecord))
    except (*UNDECODABLE, CorruptSnapshot) as error:
        raise CorruptSnapshot(
            f"{_url(root_url, AUTHORITY, fs)} is no authority of a cluster ({error}); put the right one "
            "back, or remove it: then all hosts join again"
        ) from error


def replace_authority(
    root_url: str,
    record: AuthorityRecord,
    *,
    key: SealKey | None = None,
    fs: AbstractFileSystem | None = None,
) -> Authority:
    """The authority of a cluster from now on; for its leader alone. Raises OutcomeUnknown: see
    `replace_kept`."""
    made = Authority(record)
    replace_kept(root_url, AUTHORITY, msgspec.json.encode(record), key=key, fs=fs)
    return made


def _url(root_url: str, name: str, fs: AbstractFileSystem | None) -> str:
    return open_location(root_url, fs).below(FOLDER, name).url
