"""Serves the REST API from a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from unistream.base.errors import Unreachable
from unistream.rest.connections import ConnectionLimits, guarded
from unistream.rest.listener import Listener

START_TIMEOUT_S: Final = 60.0  # of a machine that is overloaded; otherwise a tenth of a second
CLOSE_TIMEOUT_S: Final = 10.0
HANDSHAKE_S: Final = 10.0  # of TLS: before it is done, a connection counts for no limit
KEEP_ALIVE_S: Final = 10
SERVED_MAX: Final = 400  # requests at the same time, above the limit of connections: more are answered by 503


class RestServer:
    """Answers on `listener`, whose owner it becomes, when the constructor returns. `limits`: of each
    connection. `app` may have a `state.before_close`, which ends answers that have no end of their own.
    """

    def __init__(self, app: ASGIApp, listener: Listener, *, limits: ConnectionLimits | None = None) -> None:
        self._listener = listener
        self.port = listener.port
        config = uvicorn.Config(
            app,
            http=guarded(limits or ConnectionLimits()),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE_S,
            limit_concurrency=SERVED_MAX,
            timeout_graceful_shutdown=2,
            server_header=False,
            ws="none",
        )
        config.load()
        config.ssl = listener.context  # uvicorn would make one of files, which cannot be renewed
        self._server = _RestServer(config, getattr(getattr(app, "state", None), "before_close", None))
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listener.socket]}, name="rest", daemon=True
        )
        self._thread.start()
        if not self._server.is_up.wait(START_TIMEOUT_S):
            self.close()
            raise Unreachable(f"the REST server did not start in {START_TIMEOUT_S:.0f} s")

    @property
    def url(self) -> str:
        return self._listener.url

    def close(self) -> None:
        """Ends open connections, waits for the thread."""
        self._server.should_exit = True
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_TIMEOUT_S)
        self._listener.close()


class _RestServer(uvicorn.Server):
    """Sets `is_up` when it listens; leaves signals to the owner of the process. `before_close`: ends answers
    that have no end of their own."""

    def __init__(self, config: uvicorn.Config, before_close: Callable[[], None] | None) -> None:
        super().__init__(config)
        self.is_up = threading.Event()
        self._before_close = before_close

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.config.ssl is not None:
            loop = asyncio.get_running_loop()  # of this server alone; uvicorn leaves asyncio's 60 s
            loop.create_server = partial(loop.create_server, ssl_handshake_timeout=HANDSHAKE_S)  # type: ignore[method-assign]
        await super().startup(sockets=sockets)
        self.is_up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._before_close is not None:
            self._before_close()
        await super().shutdown(sockets=sockets)
