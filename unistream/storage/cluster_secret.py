"""The secret of a cluster: 32 random bytes next to its jobs, which its first leader makes.

Who has it can make what the cluster takes for its own, as who can write its jobs can: local files are 0600,
and an object store has its own rules.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Final

from fsspec import AbstractFileSystem

from unistream.base.errors import ConfigError, CorruptSnapshot, OutcomeUnknown, Transient
from unistream.storage.durable_local import NotWritten
from unistream.storage.location import open_location

SECRET_BYTES: Final = 32
PLACE: Final = ("security", "secret")


def cluster_secret(root_url: str, fs: AbstractFileSystem | None = None) -> bytes:
    """The secret in the folder of a cluster; all leaders get the same one.

    Raises:
        ConfigError: the folder cannot be written.
        CorruptSnapshot: what is there is no secret; nothing makes another one, since what was sealed would
            count no more.
        Transient, OutcomeUnknown: the store does not answer.
    """
    root = open_location(root_url, fs)
    target = root.below(*PLACE)
    with suppress(FileNotFoundError):
        return _checked(target.read(), target.url)
    try:
        folder = root.below(PLACE[0])
        folder.fs.makedirs(folder.path, exist_ok=True)
        with suppress(FileExistsError):
            target.fs.pipe_file(target.path, secrets.token_bytes(SECRET_BYTES).hex().encode(), mode="create")
        return _checked(target.read(), target.url)
    except (PermissionError, FileNotFoundError) as error:  # no right to, or no bucket
        raise ConfigError(f"cannot store the cluster's secret at {target.url}: {error}") from error
    except NotWritten as error:
        raise Transient(f"cannot store the cluster's secret at {target.url}: {error}") from error
    except OSError as error:
        raise OutcomeUnknown(f"{target.url} may or may not have been written: {error}") from error


def _checked(content: bytes, url: str) -> bytes:
    try:
        secret = bytes.fromhex(content.decode("ascii"))
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise CorruptSnapshot(
            f"{url} is no secret of a cluster; put the right one back, or remove it: then all tokens are void"
        )
    return secret
