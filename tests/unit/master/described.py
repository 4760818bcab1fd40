"""Whether an answer is what the OpenAPI document says of its path."""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import Any

import httpx
import msgspec

from unistream.rest import shapes
from unistream.rest.event_log import EVENT_STREAM
from unistream.rest.openapi import OPERATIONS, Operation


def is_as_described(response: httpx.Response) -> None:
    """Fails if a field is missing, is of another type, or is not described. Those of events are
    looked at by who reads them (`event_reader.Events`)."""
    if response.headers.get("content-type", "").startswith(EVENT_STREAM):
        return
    response.read()
    path = response.request.url.path.removeprefix("/v1")
    operation = operation_of(response.request.method, path)
    if operation is None:
        is_page = path in {"/", "/openapi.json", "/icon.svg"} or path.startswith(("/ui/", "/assets/"))
        assert response.status_code >= HTTPStatus.BAD_REQUEST or is_page, path
    elif response.content and response.headers["content-type"].startswith("application/json"):
        answer: Any = operation.answer if response.status_code == operation.status else shapes.Errors
        decoded = msgspec.json.decode(response.content, type=answer)
        described, given = json.loads(msgspec.json.encode(decoded)), json.loads(response.content)
        assert described == given, f"{path}: {described} is described, {given} was answered"


def operation_of(method: str, path: str) -> Operation | None:
    """That of the template with the fewest parameters, as paths without any are served first."""
    found = [
        (template.count("{"), operation)
        for template, operation in OPERATIONS.items()
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), f"{method} {path}")
    ]
    return min(found, key=lambda pair: pair[0])[1] if found else None
