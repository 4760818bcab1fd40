"""How a catalogue is addressed and opened, and what its errors mean for a job.

A catalogue is any of pyiceberg's: SQL, REST, Hive, Glue, … Each raises errors of the libraries below it, so
what is not known to be a mistake of the configuration counts as a system that does not answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec

from unistream.base.errors import ConfigError, UnistreamError, Unreachable
from unistream.base.extras import require
from unistream.base.os_failures import stays
from unistream.base.references import has_reference, is_reference
from unistream.base.secrets import Secret, is_secret_name, resolved_options
from unistream.connector.common import absolute, remedy
from unistream.model.lineage import LineageDataset, dataset_at

FORMAT_VERSION: Final = "format-version"
FORMAT_VERSION_MAX: Final = 2  # that pyiceberg writes
URI: Final = "uri"
WAREHOUSE: Final = "warehouse"
IO_CLASS: Final = "py-io-impl"
DURABLE_IO: Final = "unistream.connector.iceberg.files.DurableFileIO"
CONNECT_TIMEOUT_S: Final = 10
STATEMENT_TIMEOUT_MS: Final = 60_000  # of one statement in PostgreSQL; a commit is an update of one row
LOCK_TIMEOUT_S: Final = 30  # longest wait for another writer of the catalogue
SILENT_TIMEOUT_MS: Final = 30_000  # of a server that no longer acknowledges what is sent
OPEN_ATTEMPTS: Final = 3  # of several writers that open a new SQL catalogue one creates its tables
_OF_URLS: Final = ("ArgumentError", "NoSuchModuleError", "InvalidURL", "MissingSchema")
"""Errors of SQLAlchemy and requests, which this room does not import, for a URL that cannot be one."""
_INVALID: Final = "ValidationError"  # of pyiceberg and pydantic: metadata that they do not know
_SQLITE: Final = re.compile(r"sqlite(?:\+\w+)?:///(?!/)(?=.)")
_IDENTIFIER: Final = re.compile(r"[^.\s#?\0]{1,255}(\.[^.\s#?\0]{1,255})+")
"""What a table may be called: the parts of its name are names of folders of the warehouse, in a URL."""


class TableAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A table in a catalogue.

    Attributes:
        catalog: Its name: of pyiceberg's configuration, and in a SQL catalogue the one that its tables are
            under.
        table: ``namespace.table``.
        properties: Of the catalogue. Text may be a reference; see `unistream.base.secrets`.
    """

    catalog: str
    table: str
    properties: dict[str, str | Secret]

    @property
    def text(self) -> str:
        """The address for people, and to see whether two are the same; without secrets."""
        uri = self.properties.get(URI, "")
        if isinstance(uri, str) and has_reference(uri):
            uri = resolved_options("catalog property", {URI: uri})[URI]
        return f"{self.table} in catalog {self.catalog!r}" + (
            f" at {without_user(uri)}" if isinstance(uri, str) and uri else ""
        )

    def without_secrets(self) -> TableAddress:
        """The address as it is stored: references stay, a password in a URL is removed, and so is what else
        must not be read."""
        kept = {
            name: value if is_reference(value) else without_password(value)
            for name, value in self.properties.items()
            if isinstance(value, str) and (is_reference(value) or not is_secret_name(name))
        }
        return msgspec.structs.replace(self, properties=kept)


class TableSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a sink asks of its table; see `IcebergSink`."""

    partition_by: tuple[str, ...]
    create: bool
    add_columns: bool
    table_properties: dict[str, str]


def checked_address(
    catalog: str, table: str, properties: Mapping[str, Any], who: str = "Iceberg sink"
) -> TableAddress:
    """The address of a table, checked. Relative paths become absolute: workers run in other folders. A local
    warehouse becomes a URL: other readers of a table take its locations for URLs only. Raises ConfigError."""
    if not isinstance(table, str) or not _IDENTIFIER.fullmatch(table):
        raise ConfigError(
            f"{who}: table is 'namespace.name', such as 'lake.orders', without blanks, '#' and '?', "
            f"not {table!r:.100}"
        )
    if not isinstance(catalog, str) or not catalog:
        raise ConfigError(f"{who}: catalog is the name of a catalog, not {catalog!r}")
    values: dict[str, str | Secret] = {}
    for name, value in properties.items():
        if isinstance(value, bool):
            values[name] = str(value).lower()
        elif isinstance(value, str | int | float | Secret):
            values[name] = value if isinstance(value, Secret) else str(value)
        else:
            raise ConfigError(f"{who}: catalog property {name!r} is text, not {value!r:.100}")
    uri, warehouse = values.get(URI), values.get(WAREHOUSE)
    if isinstance(uri, str) and _SQLITE.match(uri):
        begin, _, path = uri.partition(":///")
        values[URI] = f"{begin}:///{absolute(path)}"
    if isinstance(warehouse, str) and warehouse.startswith((".", "/", "file://")):
        if set("#?") & set(warehouse):
            raise ConfigError(
                f"{who}: warehouse {warehouse!r} becomes a URL, so it cannot have '#' or '?' in it"
            )
        values[WAREHOUSE] = f"file://{absolute(warehouse)}"
    return TableAddress(catalog=catalog, table=table, properties=values)


def lineage_of(address: TableAddress) -> LineageDataset:
    """The dataset of a table: below the warehouse, if that is a place; else in the catalog."""
    warehouse = address.properties.get(WAREHOUSE, "")
    if isinstance(warehouse, str) and ("://" in warehouse or warehouse.startswith("/")):
        return dataset_at(f"{warehouse.rstrip('/')}/{address.table.replace('.', '/')}", "iceberg")
    return LineageDataset(f"iceberg://{address.catalog}", address.table, "iceberg")


def open_catalog(address: TableAddress) -> Any:
    """A `pyiceberg.catalog.Catalog`; the caller closes it.

    Raises:
        ConfigError: its properties are wrong, or a library is not installed.
        Unreachable: it does not answer.
    """
    require("iceberg", "an Iceberg table")
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    configured = dict(Config().get_catalog_config(address.catalog) or {})
    properties = resolved_options("catalog property", address.properties)
    if IO_CLASS not in configured:
        properties.setdefault(IO_CLASS, DURABLE_IO)
    if uri := properties.get(URI) or configured.get(URI):
        properties[URI] = with_timeouts(str(uri))
        if str(uri).startswith(("postgresql", "sqlite")):
            properties.setdefault("pool_pre_ping", "true")  # after a restart of the server
    for attempt in range(OPEN_ATTEMPTS):
        try:
            with answering(f"catalog {address.catalog!r}", "opening it"):
                kind = _type_of(both := {**configured, **properties})
                if kind == "rest":
                    from unistream.connector.iceberg.rest import LimitedRestCatalog

                    return LimitedRestCatalog(address.catalog, **both)
                if kind == "sql":
                    from unistream.connector.iceberg.sql import ClosingSqlCatalog

                    return ClosingSqlCatalog(address.catalog, **both)
                return load_catalog(address.catalog, **properties)
        except Unreachable:
            if attempt == OPEN_ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _type_of(properties: Mapping[str, Any]) -> str:
    """The type of a catalogue as `load_catalog` finds it out; "": one that it has to load."""
    if "py-catalog-impl" in properties:
        return ""
    uri = str(properties.get(URI, ""))
    by_uri = "rest" if uri.startswith("http") else "sql" if uri.startswith(("sqlite", "postgresql")) else ""
    return str(properties.get("type", by_uri)).lower()


@contextmanager
def answering(
    where: str, doing: str, passing: type[Exception] | tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """What a catalogue raises, as an error of ours. `passing`: what the caller handles itself.

    Raises:
        ConfigError: the user can mend it.
        Unreachable: anything else: it may answer later.
    """
    from pyiceberg.exceptions import (
        BadRequestError,
        ForbiddenError,
        NoSuchNamespaceError,
        NoSuchPropertyException,
        NotInstalledError,
        OAuthError,
        UnauthorizedError,
    )

    mistakes = (
        BadRequestError,
        ForbiddenError,
        ImportError,
        LookupError,
        NotImplementedError,
        NoSuchNamespaceError,
        NoSuchPropertyException,
        NotInstalledError,
        OAuthError,
        PermissionError,
        TypeError,
        UnauthorizedError,
        ValueError,
    )
    try:
        yield
    except UnistreamError:
        raise
    except passing:
        raise
    except mistakes as error:
        raise ConfigError(f"Iceberg, {where}: {doing} was refused: {_brief(error)}") from error
    except Exception as error:  # of whatever library is below this catalogue
        if type(error).__name__ in (*_OF_URLS, _INVALID) or stays(error):
            raise ConfigError(f"Iceberg, {where}: {doing} was refused: {_brief(error)}") from error
        if (what := remedy(error)) is not None:
            raise ConfigError(f"Iceberg, {where}: {doing} was refused: {_brief(error)}; {what}") from error
        raise Unreachable(f"Iceberg, {where} did not answer while {doing}: {_brief(error)}") from error


def _brief(error: BaseException) -> str:
    """The first line of an error, without passwords of URLs; databases add the statement and its values
    below. What is wrong with metadata is in the lines behind that."""
    lines = str(error).strip().splitlines()
    if type(error).__name__ == _INVALID and len(lines) > 2:
        why = lines[2].strip().removeprefix("Value error, ").partition(" [type=")[0]
        lines = [f"{why} ({lines[1].strip()})"]
    return re.sub(r"(?<=://)[^/@\s]*@", "", lines[0]) if lines else type(error).__name__


def with_timeouts(uri: str) -> str:
    """Limits of every wait, for the databases that take them in the URL; what is there stays.

    >>> with_timeouts("sqlite:////lake/catalog.db")
    'sqlite:////lake/catalog.db?timeout=30'
    >>> with_timeouts("https://catalog.example.org/v1")
    'https://catalog.example.org/v1'
    """
    scheme = uri.partition("://")[0]
    if scheme.startswith("sqlite"):
        limits = {"timeout": str(LOCK_TIMEOUT_S)}
    elif scheme.startswith("postgres"):
        limits = {
            "connect_timeout": str(CONNECT_TIMEOUT_S),
            "tcp_user_timeout": str(SILENT_TIMEOUT_MS),
            "options": f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={LOCK_TIMEOUT_S}s",
        }
    else:
        return uri
    base, _, query = uri.partition("?")
    given = dict(parse_qsl(query, keep_blank_values=True))
    return f"{base}?{urlencode({**limits, **given}, quote_via=quote)}"


def without_password(url: str) -> str:
    """A URL as it may be stored.

    >>> without_password("postgresql+psycopg://lake:hunter2@db/catalog")
    'postgresql+psycopg://lake@db/catalog'
    >>> without_password("postgresql://db/catalog?user=lake&password=hunter2")
    'postgresql://db/catalog?user=lake'
    """
    url = re.sub(r"(?<=://)([^/@:\s]*):[^/@\s]*(?=@)", r"\1", url)
    return re.sub(r"(?<=[?&])password=[^&]*&|[?&]password=[^&]*$", "", url)


def without_user(url: str) -> str:
    """The URL without its user, and also without options, which say how and not where."""
    parts = urlsplit(re.sub(r"(?<=://)[^/@\s]*@", "", url))
    if parts.scheme.startswith("sqlite"):
        return url.partition("?")[0]
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
