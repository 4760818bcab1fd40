"""Refuses request bodies that are too large, before they fill the memory."""

from __future__ import annotations

from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unistream.base.limits import ARTIFACT_BYTES_MAX, MIB, PIPELINE_BYTES_MAX

BODY_BYTES_MAX: Final = 10 * MIB  # any request but a submission
SUBMISSION_BYTES_MAX: Final = (
    ARTIFACT_BYTES_MAX + PIPELINE_BYTES_MAX + 16 * MIB
)  # the artifact, what it was made of, the graph and the configuration


class BodyLimit:
    """ASGI middleware. `large_path`: the end of the one path whose body may hold an artifact."""

    def __init__(self, app: ASGIApp, large_path: str) -> None:
        self._app = app
        self._large_path = large_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_large = scope["method"] == "POST" and scope["path"].endswith(self._large_path)
        limit = SUBMISSION_BYTES_MAX if is_large else BODY_BYTES_MAX
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            await _refuse(send, limit)
            return
        await self._app(scope, _counted(receive, limit), send)


def _counted(receive: Receive, limit: int) -> Receive:
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise HTTPException(413, _text(limit))
        return message

    return counted


async def _refuse(send: Send, limit: int) -> None:
    body = b'{"errors":["' + _text(limit).encode() + b'"]}'
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _text(limit: int) -> str:
    return f"the request's body is larger than {limit} B"
