"""Values that must not be shown in logs, errors, REST, metadata or any other output.

First by type: a `Secret` never shows its value. Second by name: text under a key that sounds like a secret,
and passwords in URLs. A reference such as ``${env:NAME}`` names the location of a secret, so it may be shown
(`unistream.base.references`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from unistream.base.errors import ConfigError
from unistream.base.references import REFERENCE, is_reference

HIDDEN: Final = "****"
IN_QUERY: Final = frozenset(("password", "sslpassword"))
"""Parameters of PostgreSQL that the URL of a database may have behind its "?", where libraries show them."""
SEALING_VARIABLE: Final = "UNISTREAM_SECRET"
"""Has the text with which the keys of a cluster are sealed; no process has it that runs code of users."""

_NAME: Final = re.compile(
    r"pass(word|wd|phrase)|secret|token|credential|authorization|jaas|sasl(?!.?mechanism)"
    r"|(access|account|api|private|shared|encryption|ssl).?key(?!.?(location|store.?(location|type)))",
    re.IGNORECASE,
)
_LOGIN: Final = re.compile(r"(?<=://)(?:\$?\$\{[^}]*\}|[^/?#@${])*@")  # references in it: any characters
NAMED_BYTES_MAX: Final = 64 * 1024  # of a file that a reference names: keys and certificates are smaller
_USER_INFO: Final = re.compile(r"(?<=://)([^/@:\s]*):[^/@\s]+(?=@)")
_PARAMETER: Final = re.compile(rf"(?<=[?&])({'|'.join(sorted(IN_QUERY))})=[^&\s]+")


class Secret(msgspec.Struct, frozen=True, tag_field="type", tag="secret"):
    """Text that is shown as ``****``; call `reveal` only where it is used.

    >>> Secret("hunter2"), str(Secret("hunter2")), f"{Secret('hunter2')}"
    (****, '****', '****')
    >>> Secret("hunter2").reveal()
    'hunter2'
    """

    value: str

    def reveal(self) -> str:
        return self.value

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("value", HIDDEN)]


def is_secret_name(name: str) -> bool:
    """Whether text under this key is hidden.

    >>> is_secret_name("sasl.jaas.config"), is_secret_name("AWS_SECRET_ACCESS_KEY"), is_secret_name("topic")
    (True, True, False)
    """
    return _NAME.search(name) is not None


def resolved(what: str, value: str | Secret) -> str:
    """Plain text for a library: of a secret, or `value` with what its references name in their places. In
    front of the host of a URL that is quoted, so a password may have any characters. Of references in what
    they name none is looked up.

    Call it where the connection is made, in the master's discovery or in a worker, so that the pipeline, the
    job graph and savepoints only contain the reference.

    Args:
        what: For an error, such as "Kafka property 'ssl.password'".
        value: Plain text, which may have references in it, or a secret.

    Raises:
        ConfigError: the variable is not set, or the file cannot be read.
    """
    if isinstance(value, Secret):
        return value.reveal()
    logins = [login.span() for login in _LOGIN.finditer(value)]

    def named(found: re.Match[str]) -> str:
        if found[1] is None:
            return "${"
        plain = looked_up(what, found[1], found[2])
        quotes = any(begin <= found.start() < end for begin, end in logins)
        return quote(plain, safe="") if quotes else plain

    return REFERENCE.sub(named, value)


def looked_up(what: str, kind: str, where: str) -> str:
    """The content of a variable (`kind` "env") or a file ("file"), of which a final newline is no part.

    Args:
        what: That has the reference, for an error.
        kind: Of the reference.
        where: The name of the variable, or the path of the file.

    Raises:
        ConfigError: there is no such thing, or it cannot be read.
    """
    if kind == "env":
        if where not in os.environ:
            raise ConfigError(f"{what} refers to environment variable {where!r}, which is not set")
        return os.environ[where]
    try:
        with Path(where).open("rb") as file:
            content = file.read(NAMED_BYTES_MAX + 1)
        text = content.decode()
    except OSError as error:
        raise ConfigError(f"{what} refers to file {where!r}: {error.strerror}") from error
    except ValueError as error:  # also of a path that has a NUL
        raise ConfigError(f"{what} refers to file {where!r}, which is no text in UTF-8") from error
    if len(content) > NAMED_BYTES_MAX:
        raise ConfigError(f"{what} refers to file {where!r}, which has more than {NAMED_BYTES_MAX:,} bytes")
    return text.removesuffix("\n").removesuffix("\r")


def resolved_options(what: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with each text and secret resolved as `resolved` does, also inside mappings; the rest as it
    is."""
    return {key: _resolved_option(f"{what} {key!r}", value) for key, value in options.items()}


def _resolved_option(what: str, value: Any) -> Any:
    match value:
        case str() | Secret():
            return resolved(what, value)
        case {"type": "secret", "value": str(text)}:
            return text
        case Mapping():
            return resolved_options(what, value)
    return value


def redacted(value: Any, name: str = "") -> Any:
    """A copy of plain data (mappings, lists, text, numbers) in which no secret can be read.

    Args:
        value: To be shown.
        name: The key that it is under.

    >>> redacted({"sasl.plain.password": "x", "ssl.password": "${env:P}", "url": "db://u:p@host/d"})
    {'sasl.plain.password': '****', 'ssl.password': '${env:P}', 'url': 'db://u:****@host/d'}
    """
    match value:
        case Secret() | {"type": "secret", "value": str()}:
            return HIDDEN
        case Mapping():
            return {key: redacted(inner, str(key)) for key, inner in value.items()}
        case list() | tuple():
            return [redacted(inner, name) for inner in value]
        case str() if is_secret_name(name) and not is_reference(value):
            return HIDDEN
        case str():
            return _PARAMETER.sub(rf"\1={HIDDEN}", _USER_INFO.sub(rf"\1:{HIDDEN}", value))
    return value


def redacted_repr(struct: msgspec.Struct) -> str:
    """The `repr` of a struct with its mappings redacted; to be its ``__repr__``."""
    shown = []
    for field in struct.__struct_fields__:
        value = getattr(struct, field)
        shown.append(f"{field}={redacted(value, field) if isinstance(value, Mapping) else value!r}")
    return f"{type(struct).__name__}({', '.join(shown)})"
