"""Serves the REST API from a thread of its own, on a loopback address."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from unistream.base.errors import ConfigError, Unreachable
from unistream.rest.connections import ConnectionLimits, guarded

START_TIMEOUT_S: Final = 60.0  # of a machine that is overloaded; otherwise a tenth of a second
CLOSE_TIMEOUT_S: Final = 10.0
KEEP_ALIVE_S: Final = 10
SERVED_MAX: Final = 400  # requests at the same time, above the limit of connections: more are answered by 503
BACKLOG: Final = 128


class RestServer:
    """Listens when the constructor returns. `limits`: of each connection. `app` may have a
    `state.before_close`, which ends answers that have no end of their own.

    Raises:
        ConfigError: the address is not a loopback one, or the port is taken.
    """

    def __init__(self, app: ASGIApp, *, host: str, port: int, limits: ConnectionLimits | None = None) -> None:
        _check_loopback(host)
        self._socket = _listen(host, port)
        self.host = host
        self.port = int(self._socket.getsockname()[1])
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
        self._server = _Server(config, getattr(getattr(app, "state", None), "before_close", None))
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="rest", daemon=True
        )
        self._thread.start()
        if not self._server.is_up.wait(START_TIMEOUT_S):
            self.close()
            raise Unreachable(f"the REST server did not start in {START_TIMEOUT_S:.0f} s")

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def close(self) -> None:
        """Ends open connections, waits for the thread."""
        self._server.should_exit = True
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_TIMEOUT_S)
        self._socket.close()


class _Server(uvicorn.Server):
    """Sets `is_up` when it listens; leaves signals to the owner of the process. `before_close`: ends answers
    that have no end of their own."""

    def __init__(self, config: uvicorn.Config, before_close: Callable[[], None] | None) -> None:
        super().__init__(config)
        self.is_up = threading.Event()
        self._before_close = before_close

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.is_up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._before_close is not None:
            self._before_close()
        await super().shutdown(sockets=sockets)


def _check_loopback(host: str) -> None:
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise ConfigError(
            f"rest.address {host!r} is not a loopback address: every client of this API can run code here, "
            "so it needs TLS and authentication first, which this version does not have; use 127.0.0.1"
        )


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65_535:
        raise ConfigError(f"rest.port {port} is not between 0 and 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"rest.port {port}: cannot listen on {host}: {error.strerror}") from error
    return listener
