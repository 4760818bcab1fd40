"""Optional libraries, by the extra that installs them: `pip install "unistream[delta]"`.

They are required where the user first names a feature: when a source or sink is constructed, a job submitted
or a cluster started. So a missing one is not found by a traceback, or later in a worker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from unistream.base.errors import ConfigError

EXTRAS: Final[Mapping[str, Mapping[str, str]]] = {
    "avro": {"fastavro": "fastavro"},
    "dagster": {"dagster": "dagster", "dagster-webserver": "dagster_webserver"},
    "delta": {"deltalake": "deltalake"},
    "iceberg": {"pyiceberg": "pyiceberg"},
    "kafka": {"kafka-python": "kafka"},
    "postgres": {"psycopg": "psycopg"},
    "protobuf": {"protobuf": "google.protobuf"},
    "rocksdb": {"rocksdict": "rocksdict"},
    "s3": {"s3fs": "s3fs"},
    "savepoint": {"duckdb": "duckdb"},
    "server": {"fastapi": "fastapi", "uvicorn": "uvicorn"},
    "spark": {"pyspark": "pyspark"},
}
"""Extra -> library, as `pyproject.toml` has it -> the module by which it is found."""

NOT_NEEDED: Final = frozenset({"dagster-webserver"})
"""Installed by an extra for users; our code does not import them."""

RANGES: Final[Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]] = {"pyspark": ((4, 0), (5,))}
"""Library -> least version, and the first one that is too new, as `pyproject.toml` has them: for libraries
that users choose by their cluster, so that pip does not choose them for us."""


def is_installed(extra: str) -> bool:
    """All libraries of `extra` can be found; nothing is imported."""
    return not _missing(extra)


def require(extra: str, what: str) -> None:
    """Refuses `what`, such as "DeltaSink", where the libraries of `extra` are missing or of another version.

    Raises:
        ConfigError: one of them is; the message names the extra.
    """
    missing = _missing(extra)
    if missing:
        raise ConfigError(
            f"{what} needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not "
            f'installed here: pip install "unistream[{extra}]"'
        )
    for library in EXTRAS[extra].keys() & RANGES.keys():
        _check_version(library, extra, what)


def _check_version(library: str, extra: str, what: str) -> None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version(library)
    except PackageNotFoundError:  # not installed by pip: it is in a Spark's own folder
        return
    least, beyond = RANGES[library]
    release = tuple(int(number) for number in re.findall(r"\d+", found)[:2])
    if not least <= release < beyond:
        low, high = (".".join(map(str, numbers)) for numbers in (least, beyond))
        raise ConfigError(
            f"{what} needs {library} {low} or later, below {high}, and {found} is installed here: "
            f'pip install "unistream[{extra}]"'
        )


def _missing(extra: str) -> list[str]:
    return [
        library
        for library, module in EXTRAS[extra].items()
        if library not in NOT_NEEDED and not _is_there(module)
    ]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False
