"""Passes a request on to another server as it is, and its answer back, over ASGI: what a standby does, and
`unistream proxy`.

An answer is passed back when it is complete, so that one whose server dies meanwhile is none, or, if the
caller wants that, piece by piece, as a stream of events always is. A client that has gone is noticed: what it
has asked for is asked for no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from ssl import SSLContext
from typing import Final
from urllib.parse import SplitResult, urlsplit

import h11
from starlette.types import Message, Receive, Scope, Send

from unistream.rest.event_log import EVENT_STREAM

CONNECT_S: Final = 5.0  # it listens, or it does not
ANSWER_S: Final = 120.0  # longer than any client waits
PIECE_BYTES: Final = 64 * 1024
NOT_PASSED_ON: Final = frozenset(
    (b"connection", b"keep-alive", b"te", b"trailer", b"upgrade", b"proxy-connection", b"expect")
)
"""RFC 9110, 7.6.1: of the connection alone; what is expected before a body is answered here."""

OF_EACH_SERVER: Final = NOT_PASSED_ON | {b"transfer-encoding", b"date", b"server"}

NoAnswer = (OSError, TimeoutError, h11.RemoteProtocolError)
"""What `pass_on` raises if there is none; then nothing was sent back."""


class CutOff(Exception):
    """The server has ended before its answer, of which a part was passed back."""


async def pass_on(  # the three of ASGI first
    scope: Scope,
    receive: Receive,
    send: Send,
    url: str,
    *,
    more: Sequence[tuple[bytes, bytes]],
    context: SSLContext | None = None,
    in_pieces: bool = False,
) -> None:
    """Passes the request on to the server at `url`, and its answer back.

    Args:
        scope: Of ASGI, as the next two.
        receive: The request's body.
        send: The client.
        url: Of the server, without a path.
        more: Headers that the request gets besides its own.
        context: Verifies a server that speaks TLS.
        in_pieces: The answer is passed back as it comes.

    Raises:
        OSError, TimeoutError, h11.RemoteProtocolError: `NoAnswer`; nothing was passed back.
        CutOff: only `in_pieces`.
    """
    at = urlsplit(url)
    tls = context if at.scheme == "https" else None
    connecting = asyncio.open_connection(at.hostname, at.port, ssl=tls)
    reader, writer = await asyncio.wait_for(connecting, CONNECT_S)
    connection = h11.Connection(h11.CLIENT)
    try:
        writer.write(connection.send(_head(scope, at, more)))
        if await _pass_body(connection, receive, writer):
            await _while_here(receive, _pass_back(connection, reader, send, in_pieces=in_pieces))
    finally:
        writer.close()


def _head(scope: Scope, at: SplitResult, more: Sequence[tuple[bytes, bytes]]) -> h11.Request:
    """The head of the request for the server at `at`. For it, pages of this server are pages of its own: they
    have passed the guard here."""
    host = at.netloc.encode()
    replaced = {b"host": host, b"origin": f"{at.scheme}://".encode() + host}
    headers = [
        (name, replaced.get(name, value)) for name, value in scope["headers"] if name not in NOT_PASSED_ON
    ]
    query: bytes = scope["query_string"]
    target: bytes = scope["raw_path"] + (b"?" + query if query else b"")
    headers += [(b"connection", b"close"), *more]
    return h11.Request(method=scope["method"], target=target, headers=headers)


async def _pass_body(connection: h11.Connection, receive: Receive, writer: asyncio.StreamWriter) -> bool:
    """False: the client has gone before its end."""
    more = True
    while more:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            return False
        body, more = message.get("body", b""), message.get("more_body", False)
        writer.write(connection.send(h11.Data(data=body)) or b"" if body else b"")
        await writer.drain()
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    await writer.drain()
    return True


async def _while_here(receive: Receive, answer: Coroutine[None, None, None]) -> None:
    """Passes the answer back until it is complete, or the client has gone."""
    answered, gone = asyncio.ensure_future(answer), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait([answered, gone], return_when=asyncio.FIRST_COMPLETED)
        if answered.done():
            await answered
    finally:
        for one in (answered, gone):
            one.cancel()
            with suppress(asyncio.CancelledError, CutOff, *NoAnswer):
                await one


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _pass_back(
    connection: h11.Connection, reader: asyncio.StreamReader, send: Send, *, in_pieces: bool
) -> None:
    response = await asyncio.wait_for(_response(connection, reader), ANSWER_S)
    headers = [(name, value) for name, value in response.headers if name not in OF_EACH_SERVER]
    start = {"type": "http.response.start", "status": response.status_code, "headers": headers}
    if dict(headers).get(b"content-type", b"").startswith(EVENT_STREAM.encode()):
        await send(start)
        with suppress(*NoAnswer):  # its client asks again
            await _pass_pieces(connection, reader, send)
        await send({"type": "http.response.body", "body": b""})
    elif in_pieces:
        await send(start)
        try:
            await _pass_pieces(connection, reader, send)
        except NoAnswer as error:
            raise CutOff from error
        await send({"type": "http.response.body", "body": b""})
    else:
        pieces = []
        while piece := await _piece(connection, reader):
            pieces.append(piece)
        await send(start)
        await send({"type": "http.response.body", "body": b"".join(pieces)})


async def _pass_pieces(connection: h11.Connection, reader: asyncio.StreamReader, send: Send) -> None:
    while piece := await _piece(connection, reader):
        await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _response(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Response:
    while not isinstance(event := await _event(connection, reader), h11.Response):
        pass  # an informational one
    return event


async def _piece(connection: h11.Connection, reader: asyncio.StreamReader) -> bytes:
    """The next piece of the answer's body; empty: it is complete."""
    event = await _event(connection, reader)
    return bytes(event.data) if isinstance(event, h11.Data) else b""


async def _event(connection: h11.Connection, reader: asyncio.StreamReader) -> object:
    """Raises h11.RemoteProtocolError: the server has ended before that of its answer, or speaks no HTTP."""
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(PIECE_BYTES))
    return event
