"""Refuses request bodies that are too large, or too many at once, before they fill the memory.

All bodies that are being read, or whose requests are being answered, share one budget. Nothing of a body is
read before who sends it was let in, so nobody without a token takes from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unistream.base.limits import ARTIFACT_BYTES_MAX, MIB, PIPELINE_BYTES_MAX

BODY_BYTES_MAX: Final = 10 * MIB  # any request but a submission
SUBMISSION_BYTES_MAX: Final = (
    ARTIFACT_BYTES_MAX + PIPELINE_BYTES_MAX + 16 * MIB
)  # the artifact, what it was made of, the graph and the configuration
BODIES_BYTES_MAX: Final = SUBMISSION_BYTES_MAX + 64 * MIB
"""All bodies together may have so many: the largest one, and small ones next to it."""

RETRY_AFTER_S: Final = 1


class BodyLimit:
    """ASGI middleware, of one event loop.

    Args:
        app: What it is around.
        large_path: The end of the one path whose body may hold an artifact.
        bytes_max: Of all bodies together.
    """

    def __init__(self, app: ASGIApp, large_path: str, bytes_max: int = BODIES_BYTES_MAX) -> None:
        self._app = app
        self._large_path = large_path
        self._bytes_max = bytes_max
        self._taken = 0

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
        counted = _Counted(self._take, receive, limit)
        try:
            await self._app(scope, counted, send)
        finally:
            self._taken -= counted.seen

    def _take(self, size: int) -> None:
        """Raises HTTPException: there is no room."""
        self._taken += size
        if self._taken > self._bytes_max:
            raise HTTPException(
                503,
                f"the bodies of all requests together are larger than {self._bytes_max} B now: send it again",
                {"Retry-After": str(RETRY_AFTER_S), "Connection": "close"},
            )


class _Counted:
    """What a request receives; `seen`: bytes of its body so far."""

    def __init__(self, take: Callable[[int], None], receive: Receive, limit: int) -> None:
        self._take = take
        self._receive = receive
        self._limit = limit
        self.seen = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        size = len(message.get("body", b""))
        self.seen += size
        self._take(size)
        if self.seen > self._limit:
            raise HTTPException(413, _text(self._limit))
        return message


async def _refuse(send: Send, limit: int) -> None:
    body = b'{"errors":["' + _text(limit).encode() + b'"]}'
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _text(limit: int) -> str:
    return f"the request's body is larger than {limit} B"
