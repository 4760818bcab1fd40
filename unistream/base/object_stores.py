"""File systems by URL, and the S3 store of this process.

As in Flink, the options ``s3.…`` are those of a process: its checkpoints, savepoints, artifacts, files and
tables are in one store. A cluster passes its configuration to its workers; `use_store` is called where one is
first known. Options of a single source or sink come before them.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unistream.base.config import (
    S3_ACCESS_KEY,
    S3_ATTEMPTS,
    S3_ENDPOINT,
    S3_PART_SIZE,
    S3_PATH_STYLE,
    S3_REGION,
    S3_SECRET_KEY,
    S3_TIMEOUT,
    Configuration,
)
from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.base.secrets import resolved

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

S3_SCHEMES: Final = ("s3", "s3a")
PREFIX: Final = "s3."
REGION_OF_OTHERS: Final = "us-east-1"  # stores other than Amazon's accept it, and requests are signed for one


class S3Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options ``s3.…``; credentials may still be references."""

    endpoint: str | None
    access_key: str | None
    secret_key: str | None
    region: str | None
    path_style: bool
    timeout_ms: int
    attempts: int
    part_bytes: int

    def __repr__(self) -> str:
        return f"S3Settings(endpoint={self.endpoint!r})"

    @classmethod
    def of(cls, config: Configuration) -> S3Settings:
        """The settings of a configuration, and the defaults. Raises ConfigError: only half of the credentials
        is set."""
        endpoint = config.find(S3_ENDPOINT)
        if (config.find(S3_ACCESS_KEY) is None) != (config.find(S3_SECRET_KEY) is None):
            raise ConfigError(f"set both {S3_ACCESS_KEY.key} and {S3_SECRET_KEY.key}, or neither")
        return cls(
            endpoint=endpoint,
            access_key=config.find(S3_ACCESS_KEY),
            secret_key=config.find(S3_SECRET_KEY),
            region=config.find(S3_REGION) or (REGION_OF_OTHERS if endpoint else None),
            path_style=config.get(S3_PATH_STYLE),
            timeout_ms=config.get(S3_TIMEOUT),
            attempts=config.get(S3_ATTEMPTS),
            part_bytes=config.get(S3_PART_SIZE),
        )

    def credentials(self) -> tuple[str, str] | None:
        """The credentials as plain text; None: Amazon's libraries find them. Raises ConfigError: a reference
        cannot be resolved."""
        if self.access_key is None or self.secret_key is None:
            return None
        return resolved(S3_ACCESS_KEY.key, self.access_key), resolved(S3_SECRET_KEY.key, self.secret_key)


_settings: S3Settings = S3Settings.of(Configuration())


def use_store(config: Configuration) -> None:
    """Makes the store of this configuration that of this process, unless it says nothing of one.

    Raises:
        ConfigError: its options contradict each other.
    """
    global _settings  # noqa: PLW0603  (one store for each process, as in Flink)
    if store_options(config):
        _settings = S3Settings.of(config)


def store_options(config: Configuration) -> dict[str, str]:
    """The options of a configuration that say where its store is, and who one is there: for another
    process."""
    return {key: value for key, value in config.to_dict().items() if key.startswith(PREFIX)}


def is_s3(url: str) -> bool:
    """Whether the scheme is one of `S3_SCHEMES`.

    >>> is_s3("s3://bucket/folder"), is_s3("/tmp/s3")
    (True, False)
    """
    return "://" in url and url.partition("://")[0].lower() in S3_SCHEMES


def file_system(url: str, options: Mapping[str, Any] | None = None) -> tuple[AbstractFileSystem, str]:
    """The fsspec file system of a URL, and the path within it.

    Args:
        url: A local path, or a URL with a scheme that fsspec knows.
        options: Of the file system, resolved; before the store of this process.

    Raises:
        ConfigError: a package is not installed, or a secret cannot be resolved.
        ImportError, ValueError, TypeError: as fsspec, for other schemes.
    """
    if not is_s3(url):
        import fsspec  # commands that open no file start without it

        system, path = fsspec.core.url_to_fs(url, **(options or {}))
        return system, str(path)
    require("s3", "a URL of an S3 store")
    merged = _merged(_file_options(_settings), options or {})
    system = _s3_files(os.getpid(), msgspec.json.encode(merged, order="sorted"))
    return system, str(system._strip_protocol(url))


def delta_options(url: str, options: Mapping[str, str]) -> dict[str, str]:
    """Options of deltalake for a table: those given (resolved), before the store of this process."""
    return {**_delta_options(_settings), **options} if is_s3(url) else dict(options)


def part_bytes() -> int:
    """The size of each part of a multipart upload but the last."""
    return _settings.part_bytes


@functools.lru_cache(maxsize=64)
def _s3_files(_process: int, options: bytes) -> AbstractFileSystem:
    """One for all threads: it has a pool of connections, and its calls run on one event loop. A forked
    process makes its own."""
    from unistream.base.s3_files import S3Files

    return S3Files(**msgspec.json.decode(options))


def _merged(ours: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(ours)
    for key, value in given.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), dict)
        result[key] = {**result[key], **value} if both else value
    return result


def _file_options(settings: S3Settings) -> dict[str, Any]:
    """The options of s3fs and botocore that follow from the settings."""
    seconds = settings.timeout_ms / 1000
    config: dict[str, Any] = {
        "connect_timeout": seconds,
        "read_timeout": seconds,
        "retries": {"mode": "standard", "total_max_attempts": settings.attempts},
    }
    if settings.path_style:
        config["s3"] = {"addressing_style": "path"}
    options: dict[str, Any] = {"config_kwargs": config, "client_kwargs": {}}
    if settings.endpoint is not None:
        options["endpoint_url"] = settings.endpoint
    if settings.region is not None:
        options["client_kwargs"]["region_name"] = settings.region
    credentials = settings.credentials()
    if credentials is not None:
        options["key"], options["secret"] = credentials
    return options


def _delta_options(settings: S3Settings) -> dict[str, str]:
    seconds = f"{settings.timeout_ms / 1000}s"
    options = {"timeout": seconds, "connect_timeout": seconds, "max_retries": str(settings.attempts - 1)}
    if settings.endpoint is not None:
        options["AWS_ENDPOINT_URL"] = settings.endpoint
        options["AWS_ALLOW_HTTP"] = str(settings.endpoint.startswith("http://")).lower()
        options["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = str(not settings.path_style).lower()
    if settings.region is not None:
        options["AWS_REGION"] = settings.region
    credentials = settings.credentials()
    if credentials is not None:
        options["AWS_ACCESS_KEY_ID"], options["AWS_SECRET_ACCESS_KEY"] = credentials
    return options
