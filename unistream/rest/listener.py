"""The socket of the REST API. To listen needs nothing of what answers (FastAPI, uvicorn, pydantic), so the
cluster of one job listens at once and loads that when the first client comes: half a second of processor
time, which most jobs never need."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from ssl import SSLContext
from typing import Final, Protocol

from unistream.base.closing import Closing
from unistream.base.config import REST_PORT
from unistream.base.errors import ConfigError
from unistream.base.hosts import in_url, is_loopback

BACKLOG: Final = 128
CLOSE_S: Final = 60.0  # of libraries that are just being loaded, on a machine that is overloaded

_log = logging.getLogger(__name__)


class Listener:
    """A socket that listens, whether or not somebody accepts yet.

    Args:
        bind: The address where it listens.
        ports: Of which the first free one is taken; 0: any free one.
        context: TLS; None: there is none, and `bind` is a loopback address.
        host: By which name clients reach it; "": by `bind`.
        named: What the user calls the port, for messages.

    Raises:
        ConfigError: without TLS, the address is not a loopback one; or all ports are taken.
    """

    def __init__(
        self,
        bind: str,
        *ports: int,
        context: SSLContext | None = None,
        host: str = "",
        named: str = REST_PORT.key,
    ) -> None:
        if context is None:
            _check_loopback(bind)
        self.socket = _first_free(bind, ports, named)
        self.host = host or bind
        self.context = context
        self.port = int(self.socket.getsockname()[1])

    @property
    def url(self) -> str:
        return f"{'http' if self.context is None else 'https'}://{in_url(self.host)}:{self.port}"

    def close(self) -> None:
        self.socket.close()


class Served(Protocol):
    """What answers on a `Listener`."""

    def close(self) -> None:
        """Ends open connections; the listener is closed, too."""


class ServedOnDemand(Closing):
    """Has `serve` called, once, when the first client has connected, who waits meanwhile."""

    def __init__(self, listener: Listener, serve: Callable[[Listener], Served]) -> None:
        self._listener = listener
        self._serve = serve
        self._server: Served | None = None
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="rest-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends open connections."""
        self._wake.close()
        self._thread.join(CLOSE_S)
        if self._server is not None:
            self._server.close()
        self._listener.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector, self._woken:
            selector.register(self._listener.socket, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            if any(key.fileobj is self._woken for key, _ in selector.select()):
                return
        try:
            self._server = self._serve(self._listener)
        except Exception:
            _log.exception("event=rest_not_served url=%s", self._listener.url)
            self._listener.close()  # clients are refused instead of waiting


def _check_loopback(host: str) -> None:
    if not is_loopback(host):
        raise ConfigError(
            f"{host!r} is not a loopback address: every client of this API can run code here, so it needs a "
            "certificate"
        )


def _first_free(bind: str, ports: Sequence[int], named: str) -> socket.socket:
    for port in ports[:-1]:
        with contextlib.suppress(ConfigError):
            return _listen(bind, port, named)
    return _listen(bind, ports[-1], named)


def _listen(host: str, port: int, named: str) -> socket.socket:
    if not 0 <= port <= 65_535:
        raise ConfigError(f"{named} {port} is not between 0 and 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == "::":  # every address of this host, also of IPv4
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"{named} {port}: cannot listen on {host}: {error.strerror}") from error
    return listener
