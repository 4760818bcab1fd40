"""What the first leader of a cluster makes and all others read: a file, written once, next to the jobs.

Local files are 0600, and an object store has rules of its own. With a key the content is sealed: then who can
read the store has nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from fsspec import AbstractFileSystem

from unistream.base.errors import ConfigError, CorruptSnapshot, OutcomeUnknown, Transient
from unistream.storage.durable_local import NotWritten
from unistream.storage.location import Location, open_location
from unistream.trust.seals import SealKey, is_sealed

FOLDER = "security"


def kept_once(
    root_url: str,
    name: str,
    make: Callable[[], bytes],
    *,
    key: SealKey | None = None,
    fs: AbstractFileSystem | None = None,
) -> bytes:
    """The content of that file; of several who make it at the same time, all get the same.

    Args:
        root_url: The folder of the cluster.
        name: Of the file, below `security`.
        make: Makes the content if there is none.
        key: Seals what is made, and opens what is sealed.
        fs: The store, instead of the one that the URL names.

    Raises:
        ConfigError: the folder cannot be written, or what is there is sealed with another key.
        Transient, OutcomeUnknown: the store does not answer.
    """
    root = open_location(root_url, fs)
    target = root.below(FOLDER, name)
    with suppress(FileNotFoundError):
        return _opened(target, name, key)
    content = make()
    try:
        folder = root.below(FOLDER)
        folder.fs.makedirs(folder.path, exist_ok=True)
        with suppress(FileExistsError):
            written = content if key is None else key.sealed(content, name)
            target.fs.pipe_file(target.path, written, mode="create")
        return _opened(target, name, key)
    except (PermissionError, FileNotFoundError) as error:  # no right to, or no bucket
        raise ConfigError(f"cannot store the keys of the cluster at {target.url}: {error}") from error
    except NotWritten as error:
        raise Transient(f"cannot store the keys of the cluster at {target.url}: {error}") from error
    except OSError as error:
        raise OutcomeUnknown(f"{target.url} may or may not have been written: {error}") from error


def replace_kept(
    root_url: str,
    name: str,
    content: bytes,
    *,
    key: SealKey | None = None,
    fs: AbstractFileSystem | None = None,
) -> None:
    """Replaces what `kept_once` has made; for the leader alone.

    Raises:
        OutcomeUnknown: it may or may not have been replaced.
    """
    target = open_location(root_url, fs).below(FOLDER, name)
    written = content if key is None else key.sealed(content, name)
    try:
        target.fs.pipe_file(target.path, written, mode="overwrite")
    except OSError as error:
        raise OutcomeUnknown(f"{target.url} may or may not have been written: {error}") from error


def _opened(target: Location, name: str, key: SealKey | None) -> bytes:
    content = target.read()
    if not is_sealed(content):
        return content
    if key is None:
        raise ConfigError(
            f"{target.url} is sealed: name the file with its key by security.secret-file, or give the key in "
            "UNISTREAM_SECRET"
        )
    opened = key.opened(content, name)
    if opened is None:
        raise CorruptSnapshot(
            f"{target.url} was sealed with another key than that of security.secret-file or "
            "UNISTREAM_SECRET, or was changed since; put the right one back"
        )
    return opened
