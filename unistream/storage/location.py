"""Locations of snapshots: parsed URLs and relative paths, so that no path leads out of its directory.

A URL comes from a user (`-s PATH`) or from the configuration; a relative path comes from a manifest, which is
not trusted. Both are parsed here, once, into types that cannot point elsewhere.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from fsspec import AbstractFileSystem

from unistream.base.errors import ConfigError, CorruptSnapshot, Transient, Unreachable
from unistream.base.object_stores import file_system, is_s3
from unistream.base.path_names import refused_path
from unistream.storage.durable_local import DurableLocalFileSystem

T = TypeVar("T")
Pause = Callable[[float], None]

SCHEMES: Final = frozenset(
    {"file", "local", "memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "hdfs", "oss"}
)
"""Stores that can be written; anything else (http, ftp, chained URLs) is refused before it is contacted."""

PATH_CHARACTERS_MAX: Final = 1024  # the limit of object stores for a key, in bytes
READ_ATTEMPTS: Final = 3  # of a read that a store refused; on S3 its client repeats (s3.attempts.maximum)
READ_PAUSE_S: Final = 0.1  # before the second attempt; four times as long before each further one
REFUSED: Final = (
    "its store refused access; give a key that may list, read and write that folder (s3.access-key and "
    "s3.secret-key), and look whether the clock of this machine is right"
)
_SCHEME: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]*)://")
_COMPONENT: Final = re.compile(r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}$")


@dataclass(frozen=True, slots=True)
class StoragePath:
    """A relative path of plain components: letters, digits, ``_``, ``-`` and inner dots.

    Nothing in it can be decoded, resolved or normalised into another path: no empty part, no ``.`` or
    ``..``, no backslash, NUL, percent sign or drive. Raises ConfigError for anything else.
    """

    text: str

    def __post_init__(self) -> None:
        too_long = len(self.text) > PATH_CHARACTERS_MAX
        if too_long or not all(_is_component(part) for part in self.text.split("/")):
            raise ConfigError(f"not a relative storage path: {self.text[:200]!r}")


def _is_component(part: str) -> bool:
    return _COMPONENT.fullmatch(part) is not None and ".." not in part


class Location:
    """A directory or object of one store. Reads are repeated, at most `READ_ATTEMPTS` times. Thread-safe."""

    def __init__(self, fs: AbstractFileSystem, path: str, pause: Pause = time.sleep) -> None:
        self.fs = fs
        self.path = path
        self.pause = pause

    @property
    def url(self) -> str:
        """`open_location` of it is this location."""
        return str(self.fs.unstrip_protocol(self.path))

    @property
    def is_local(self) -> bool:
        return "file" in _protocols(self.fs)

    @property
    def is_memory(self) -> bool:
        return "memory" in _protocols(self.fs)

    def below(self, *names: str) -> Location:
        """The directory or object of these names, each a `StoragePath`."""
        parts = [StoragePath(name).text for name in names]
        return Location(self.fs, "/".join([self.path.rstrip("/"), *parts]), self.pause)

    def contains(self, inner: Location) -> bool:
        """`inner` is in this directory, also after symbolic links are followed."""
        if not self.is_local:
            return inner.path.startswith(self.path.rstrip("/") + "/")
        outer = os.path.realpath(self.path)
        return os.path.realpath(inner.path).startswith(outer.rstrip("/") + "/")

    def read(self, start: int | None = None, stop: int | None = None) -> bytes:
        """All bytes of this object, or those from `start` to `stop`; fewer if it ends before.

        Raises:
            FileNotFoundError: there is none.
            ConfigError: an S3 store refused access.
            Unreachable: the store did not answer.
        """
        return self._repeat("read", lambda: bytes(self.fs.cat_file(self.path, start=start, end=stop)))

    def size(self) -> int | None:
        """Bytes of this object, or None if there is none."""
        if is_s3(self.url) and hasattr(self.fs, "object_size"):
            size: int | None = self._repeat("check", lambda: self.fs.object_size(self.path))
            return size
        try:
            info = self._repeat("check", lambda: self._fresh().info(self.path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return int(info["size"]) if info["type"] == "file" else None

    def is_directory(self) -> bool:
        """The directory exists; on object stores: something is below it."""
        return bool(self._repeat("check", lambda: self._fresh().isdir(self.path)))

    def names(self) -> list[str]:
        """Names directly below, sorted; none if the directory is absent."""
        try:
            paths = self._repeat("list", lambda: self._fresh().ls(self.path, detail=False))
        except (FileNotFoundError, NotADirectoryError):
            return []
        inside = f"{self.path.rstrip('/')}/"  # stores list an object, or an emptied folder, by itself
        below = (str(path).rstrip("/") for path in paths)
        return sorted(path.rpartition("/")[2] for path in below if f"{path}/" != inside)

    def files(self) -> dict[str, int]:
        """Size in bytes of every file below, by relative path. One listing, however many files."""
        found = self._repeat("list", lambda: self._fresh().find(self.path, detail=True))
        root = self.fs._strip_protocol(self.path).rstrip("/") + "/"
        inside = ((str(path), info) for path, info in found.items())
        return {path.removeprefix(root): int(info["size"]) for path, info in inside if path.startswith(root)}

    def _fresh(self) -> AbstractFileSystem:
        self.fs.invalidate_cache()  # a cached listing would hide what another process wrote
        return self.fs

    def _repeat(self, verb: str, action: Callable[[], T]) -> T:
        attempts = 1 if is_s3(self.url) else READ_ATTEMPTS
        for attempt in range(attempts):
            try:
                return action()
            except (FileNotFoundError, NotADirectoryError):
                raise
            except Exception as error:  # each store's client has errors of its own
                if isinstance(error, PermissionError) and is_s3(self.url):
                    raise ConfigError(f"cannot {verb} {self.url}: {REFUSED} ({error})") from error
                if attempt == attempts - 1:
                    why = getattr(error, "strerror", None) or error  # without its number
                    raise Unreachable(f"cannot {verb} {self.url}: {why}") from error
                self.pause(READ_PAUSE_S * 4**attempt)
        raise AssertionError("the last attempt returns or raises")


@contextmanager
def transient(failure: str) -> Iterator[None]:
    """An OSError inside of the context becomes Transient."""
    try:
        yield
    except OSError as error:
        raise Transient(f"{failure}: {error}") from error


def _protocols(fs: AbstractFileSystem) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def open_location(url: str, fs: AbstractFileSystem | None = None, pause: Pause = time.sleep) -> Location:
    """Parses a plain local path, or a URL of one of `SCHEMES`; contacts nothing.

    Args:
        url: A relative path starts at the working directory.
        fs: The store to use instead of the one that the scheme names (tests inject faults with it).
        pause: Sleeps for a number of seconds.

    Raises:
        ConfigError: not a path, an unknown scheme, or its client library is not installed.
    """
    scheme = _SCHEME.match(url)
    if not url.strip() or "\0" in url or "\\" in url or "::" in url or len(url) > 4 * PATH_CHARACTERS_MAX:
        raise ConfigError(
            f"not a storage path: {url[:200]!r}; give a local path or a URL such as s3://bucket/dir"
        )
    name = scheme[1].lower() if scheme else "file"
    if name not in SCHEMES:
        raise ConfigError(
            f"cannot store snapshots at {url!r}: {name!r} is not one of {', '.join(sorted(SCHEMES))}"
        )
    if ".." in url.split("/") and scheme:
        raise ConfigError(f"not a storage path: {url!r} contains '..'")
    if fs is None:
        fs = _file_system(name, url)
    path = str(fs._strip_protocol(url))
    why = refused_path(path)
    if why is not None:
        raise ConfigError(why)
    return Location(fs, os.path.normpath(path) if name in {"file", "local"} else path.rstrip("/"), pause)


def _file_system(name: str, url: str) -> AbstractFileSystem:
    if name in {"file", "local"}:
        return DurableLocalFileSystem()
    try:
        return file_system(url)[0]
    except ImportError as error:
        raise ConfigError(f"{url!r} needs a package that is not installed: {error}") from error


def confined(directory: Location, relative: str) -> Location:
    """The file that a manifest names. Raises CorruptSnapshot if it is outside of the manifest's directory."""
    try:
        inner = directory.below(relative)
    except ConfigError as error:
        raise CorruptSnapshot(f"{directory.url}: a state file is outside of it: {error}") from None
    if not directory.contains(inner):
        raise CorruptSnapshot(f"{directory.url}: {relative!r} is a link that leads out of it")
    return inner
