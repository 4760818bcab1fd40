"""A client of Confluent's Schema Registry, which others speak, too (Karapace, Apicurio, Redpanda).

A record in its wire format begins with a zero byte and the number of its schema (4 bytes, big-endian). What a
number means never changes, so it is asked for once.
"""

from __future__ import annotations

import base64
import ssl
import time
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import httpcore
import msgspec

from unistream.base.errors import UNDECODABLE, ConfigError, Unreachable
from unistream.base.limits import MIB
from unistream.base.secrets import Secret, redacted, resolved
from unistream.connector.common import UnknownSchema

CALL_S: Final = 5.0  # for one answer
UNREACHABLE_AFTER_S: Final = 10.0  # a registry may restart within this time
RETRY_S: Final = 0.5
ANSWER_BYTES_MAX: Final = 16 * MIB  # a schema of an enterprise has some hundred KiB
UNKNOWN_FOR_S: Final = 30.0  # a number that it does not know is asked for again after this time
DEPTH_MAX: Final = 32  # of references between schemas
_ANSWERED: Final = (HTTPStatus.OK, HTTPStatus.NOT_FOUND)
_REFUSED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class SchemaRegistry(msgspec.Struct, frozen=True, kw_only=True):
    """Where schemas are looked up, in the workers.

    Attributes:
        url: Of the registry; several, separated by commas, are tried one after the other.
        user, password: For basic authentication. Either may be ``${env:NAME}`` or ``${file:PATH}``; the
            password should be, or a `Secret`.
        ca_file: Certificates that a server's is checked by, in PEM; by default those of the machine.

    Raises:
        ConfigError: a URL is not one of http or https.

    >>> import unistream as us
    >>> us.SchemaRegistry(url="http://registry:8081").url
    'http://registry:8081'
    """

    url: str
    user: str = ""
    password: str | Secret = ""
    ca_file: str = ""

    def __post_init__(self) -> None:
        for url in self.urls:
            if not url.startswith(("http://", "https://")) or "@" in url:
                raise ConfigError(
                    f"SchemaRegistry: {redacted(url)!r} is not http://HOST:PORT or https://…; "
                    "give a user by user= and password="
                )

    def __repr__(self) -> str:
        return f"SchemaRegistry(url={self.url!r}, user={self.user!r})"

    @property
    def urls(self) -> list[str]:
        return [url.strip().rstrip("/") for url in self.url.split(",")]


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """The reference of a schema to another one. `name`: as which."""

    name: str
    subject: str
    version: int


class RegisteredSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A schema as the registry has it. `kind`: AVRO, JSON or PROTOBUF."""

    text: str = msgspec.field(name="schema")
    kind: str = msgspec.field(name="schemaType", default="AVRO")
    references: tuple[Reference, ...] = ()


class RegistryClient:
    """A client of one registry, used by one thread; the caller closes it. Answers are kept.

    `serialized`: schemas of Protobuf are requested as descriptors in Base64, instead of their source.
    """

    def __init__(self, registry: SchemaRegistry, *, serialized: bool = False) -> None:
        self._form = "?format=serialized" if serialized else ""
        self._registry = registry
        self._pool: httpcore.ConnectionPool | None = None
        self._known: dict[str, RegisteredSchema] = {}
        self._unknown: dict[str, tuple[str, float]] = {}

    def schema(self, number: int) -> RegisteredSchema:
        """Raises UnknownSchema, ConfigError (it refuses this user), or Unreachable after
        UNREACHABLE_AFTER_S."""
        return self._asked(f"/schemas/ids/{number}", f"schema {number}")

    def referenced(self, schema: RegisteredSchema, depth: int = 0) -> list[tuple[str, RegisteredSchema]]:
        """What it refers to, by name, each behind those that it refers to itself. Raises as `schema`."""
        if depth > DEPTH_MAX:
            raise UnknownSchema(f"schemas refer to each other more than {DEPTH_MAX} deep")
        found: list[tuple[str, RegisteredSchema]] = []
        for one in schema.references:
            path = f"/subjects/{quote(one.subject, safe='')}/versions/{one.version}"
            used = self._asked(path, f"version {one.version} of subject {one.subject!r}")
            found += [*self.referenced(used, depth + 1), (one.name, used)]
        return found

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _asked(self, path: str, what: str) -> RegisteredSchema:
        if path in self._known:
            return self._known[path]
        reason, until = self._unknown.get(path, ("", 0.0))
        if time.monotonic() < until:
            raise UnknownSchema(reason)
        status, content = self._answer(path + self._form, what)
        if status == HTTPStatus.NOT_FOUND:
            reason = f"the schema registry at {self._registry.url} has no {what}"
            self._unknown[path] = (reason, time.monotonic() + UNKNOWN_FOR_S)
            raise UnknownSchema(reason)
        try:
            self._known[path] = msgspec.json.decode(content, type=RegisteredSchema)
        except UNDECODABLE as error:
            raise ConfigError(
                f"the schema registry at {self._registry.url} gave no schema for {path}: {error}; is it one?"
            ) from None
        return self._known[path]

    def _answer(self, path: str, what: str) -> tuple[int, bytes]:
        """Asks the servers one after the other, in repeated attempts; the first answer, as its status and
        content."""
        deadline = time.monotonic() + UNREACHABLE_AFTER_S
        while True:
            reasons = []
            for url in self._registry.urls:
                try:
                    status, content = self._get(url + path)
                except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
                    reasons.append(f"{url}: {str(error) or type(error).__name__}")
                    continue
                if status in _REFUSED:
                    raise ConfigError(
                        f"the schema registry at {url} refuses user {self._registry.user!r} (status {status})"
                    )
                if status in _ANSWERED:
                    return status, content
                reasons.append(f"{url}: status {status}")
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"the schema registry did not answer within {UNREACHABLE_AFTER_S:.0f} s while looking up "
                    f"{what} ({'; '.join(reasons)})"
                )
            time.sleep(RETRY_S)

    def _get(self, url: str) -> tuple[int, bytes]:
        if self._pool is None:
            self._pool = httpcore.ConnectionPool(ssl_context=self._ssl(), max_connections=1)
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), CALL_S)
        until = time.monotonic() + CALL_S
        content = bytearray()
        with self._pool.stream(
            "GET", url, headers=self._headers(), extensions={"timeout": timeouts}
        ) as answer:
            for part in answer.iter_stream():
                content += part
                if len(content) > ANSWER_BYTES_MAX or time.monotonic() > until:
                    raise httpcore.ReadTimeout(f"an answer of {len(content):,} bytes is not complete")
            return answer.status, bytes(content)

    def _headers(self) -> list[tuple[str, str]]:
        headers = [("accept", "application/vnd.schemaregistry.v1+json, application/json")]
        user = resolved("user of the schema registry", self._registry.user)
        password = resolved("password of the schema registry", self._registry.password)
        if user or password:
            both = base64.b64encode(f"{user}:{password}".encode()).decode()
            headers.append(("authorization", f"Basic {both}"))
        return headers

    def _ssl(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._registry.ca_file or None)
        except OSError as error:
            raise ConfigError(f"SchemaRegistry: ca_file {self._registry.ca_file!r}: {error}") from None
