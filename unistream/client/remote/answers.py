"""Reads what the REST API has answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from unistream.base.errors import (
    UNDECODABLE,
    AccessDenied,
    AlreadyEnded,
    ConfigError,
    Forbidden,
    NotFound,
    ProtocolError,
    UnistreamError,
)
from unistream.client.remote.http import Response

UNAVAILABLE: Final = frozenset({502, 503, 504})
"""Statuses of a gateway whose cluster is away, or of a cluster that cannot do it now."""
INTERNAL: Final = "Internal server error."
"""The first error in a response that reports a defect of the cluster itself: the client cannot fix it."""

T = TypeVar("T")

_ERRORS: Final[Mapping[int, type[UnistreamError]]] = {
    401: AccessDenied,
    403: Forbidden,
    404: NotFound,
    409: AlreadyEnded,
}


def decode(response: Response, kind: type[T]) -> T:
    """Raises ProtocolError if it is not JSON of that shape."""
    try:
        return msgspec.json.decode(response.content, type=kind)
    except UNDECODABLE as error:
        raise ProtocolError(f"the response of {response.url} is not as expected: {error}") from error


def field(response: Response, name: str) -> str:
    """Raises ProtocolError if there is none."""
    value = decode(response, dict[str, Any]).get(name)
    if not isinstance(value, str):
        raise ProtocolError(f"the response of {response.url} has no {name!r}")
    return value


def errors_in(response: Response) -> list[str]:
    """What it reports, or which request failed with which status."""
    return _reported(response) or [f"{response.method} {response.url}: status {response.status}"]


def _reported(response: Response) -> list[str]:
    """Empty: it is not of the form that every cluster's errors have."""
    try:
        return msgspec.json.decode(response.content, type=dict[str, list[str]])["errors"]
    except (*UNDECODABLE, KeyError):
        return []


def error_of(response: Response) -> UnistreamError:
    """The error of a response that is not a success."""
    texts = _reported(response)
    if not texts:
        return ProtocolError(
            f"{response.method} {response.url}: status {response.status}, and no error of a cluster: is "
            "another server at this address, or in front of the cluster?"
        )
    text = "; ".join(texts)
    if texts[:1] == [INTERNAL] and response.status not in _ERRORS:
        return ProtocolError(f"the cluster failed to answer {response.url}; its log says why: {text}")
    return _ERRORS.get(response.status, ConfigError)(text)
