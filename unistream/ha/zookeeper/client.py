"""A client of ZooKeeper whose every call ends: one session after the other, over kazoo.

kazoo's blocking calls wait as long as a server is frozen, so only its ``*_async`` ones are used, each with a
deadline. It connects again by itself for as long as it is open. This is the only place that uses its
private names; `tests/contract/test_contract_kazoo_private.py` holds them to what is assumed here.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionClosedRequireSaslError,
    SessionExpiredError,
    SessionMovedError,
    UnimplementedError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KazooState, KeeperState, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from unistream.base.closing import Closing
from unistream.base.config import ZOOKEEPER_AUTHORIZATION, ZOOKEEPER_QUORUM, ZOOKEEPER_SSL_CA
from unistream.base.errors import ConfigError, UnistreamError, Unreachable
from unistream.core.leadership import ConnectionState
from unistream.ha.zookeeper.ports import OnLink
from unistream.ha.zookeeper.settings import SASL, ZooKeeperSettings

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")


def _is_wanted(record: logging.LogRecord) -> bool:
    """Not the library's warnings of each attempt to connect: what follows from them is logged elsewhere."""
    return record.levelno >= logging.ERROR or _log.isEnabledFor(logging.INFO)


_kazoo_log.addFilter(_is_wanted)

NO_ANSWER: Final = (
    ConnectionLoss,
    KazooTimeoutError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
"""The request may or may not have been carried out."""

FOLLOWS: Final = (RolledBackError, RuntimeInconsistency)
"""Results of the operations of a transaction that failed because another one did."""

KAZOO_ERRORS: Final = (KazooException, KazooTimeoutError)

_LINKS: Final = {
    KazooState.CONNECTED: ConnectionState.CONNECTED,
    KazooState.SUSPENDED: ConnectionState.SUSPENDED,
    KazooState.LOST: ConnectionState.LOST,
}

VERSION_LEAST: Final = (3, 5)  # the oldest one that the project has seen; transactions came with 3.4
_RECONNECT_FIRST_S: Final = 0.05
_RECONNECTS_IN_SESSION: Final = 8  # a pause between attempts is no longer than this share of a session
_VERSION: Final = re.compile(r"Zookeeper version: (\d+)\.(\d+)")
_POLL_S: Final = 0.02


class _TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Connects by TLS. kazoo would do so, too, but leave a socket open for each attempt that fails, and not
    see the second one of two answers in one record of TLS until something else comes."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._context = context
        self._names: dict[tuple[str, int], str] = {}

    def create_connection(
        self, address: tuple[str, int], hostname: object, timeout: float, **_options: Any
    ) -> ssl.SSLSocket:
        """`hostname`: as the quorum has it; for a second connection to the same address it is the port."""
        if isinstance(hostname, str):
            self._names[address] = hostname
        with ExitStack() as failing:
            plain = failing.enter_context(socket.create_connection(address, timeout))
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secure = self._context.wrap_socket(plain, server_hostname=self._names.get(address, address[0]))
            failing.pop_all()
            return secure

    def select(self, readable: list[Any], *others: Any) -> Any:
        decrypted = [one for one in readable if isinstance(one, ssl.SSLSocket) and one.pending()]
        return (decrypted, [], []) if decrypted else super().select(readable, *others)


class _ZooKeeperConnection(ConnectionHandler):  # type: ignore[misc]
    """Keeps the session timeout on which the server has decided, whether it refused a login, and why the last
    attempt to connect by TLS failed."""

    negotiated_ms = 0
    refused = False
    tls_failure = ""

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        try:
            answer = super()._connect(host, hostip, port)
        except Exception as error:
            cause = error.__context__
            self.tls_failure = str(cause) if isinstance(cause, ssl.SSLError) else ""
            raise
        self.tls_failure = ""
        return answer

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        self.refused = False
        try:
            super()._authenticate_with_sasl(host, timeout)
        except (AuthFailedError, SessionClosedRequireSaslError) as error:
            self.refused = True  # kazoo tells its listeners only of those that were connected before
            raise AuthFailedError("the login was refused") from error

    def _invoke(self, timeout: float, request: Any, xid: Any = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect):
            self.negotiated_ms = answer[0].time_out
        return answer


class _Kazoo(KazooClient):  # type: ignore[misc]
    def __init__(self, sasl_options: dict[str, str] | None, **options: Any) -> None:
        super().__init__(sasl_options=sasl_options, **options)
        self._connection = _ZooKeeperConnection(
            self, self._conn_retry.copy(), logger=self.logger, sasl_options=sasl_options
        )


class ZooKeeperClient(Closing):
    """Implements `ports.ZooKeeper`. Thread-safe.

    Args:
        settings: Where, with which timeouts and credentials.
        on_link: Called with each change of the connection, on a thread of kazoo; must return at once.
    """

    def __init__(self, settings: ZooKeeperSettings, on_link: OnLink | None = None) -> None:
        self._settings = settings
        self._on_link = on_link
        self._live = threading.Event()
        self._closed = False
        self._refused = False
        self._kazoo = _kazoo(settings)
        self._kazoo.add_listener(self._changed)

    def __str__(self) -> str:
        return f"ZooKeeper at {self._settings.servers}"

    @property
    def connected(self) -> bool:
        return self._live.is_set()

    @property
    def session(self) -> int:
        """Id of the session; 0 without a connection."""
        found = self._kazoo.client_id
        return int(found[0]) if found else 0

    @property
    def timeout_ms(self) -> int:
        """The time without contact after which the server ends the session."""
        return int(self._kazoo._connection.negotiated_ms)

    # --- its life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to connect, and goes on until `close`."""
        self._kazoo.start_async()

    def open(self) -> None:
        """Connects, and checks that this is a ZooKeeper that can be used.

        Raises:
            ConfigError: it denies access, is too old, or lacks the chroot.
            Unreachable: it does not answer in time.
        """
        self.start()
        self.wait_connected(time.monotonic() + self._settings.request_s)
        self.check_chroot(time.monotonic() + self._settings.request_s)
        version = server_version(self._described())
        if version is not None and version < VERSION_LEAST:
            raise ConfigError(f"{self} is of version {_dotted(version)}; {_dotted(VERSION_LEAST)} is needed")

    def check_chroot(self, deadline_s: float) -> None:
        """Raises ConfigError if the folder that counts as root is missing."""
        chroot = self._settings.servers.chroot
        if chroot and self.read(lambda kazoo: kazoo.exists_async("/"), deadline_s) is None:
            raise ConfigError(
                f"{self} has no folder {chroot!r}; create it, or correct {ZOOKEEPER_QUORUM.key}"
            )

    def wait_connected(self, deadline_s: float) -> None:
        """Waits until the session is connected, at most until `deadline_s` of the monotonic clock. Raises
        ConfigError: denied; Unreachable: too late."""
        while not self._live.wait(min(_POLL_S * 5, max(0.0, deadline_s - time.monotonic()))):
            if self._refused or self._kazoo._connection.refused:
                raise self._denied()
            if time.monotonic() >= deadline_s:
                if self._kazoo._connection.tls_failure:
                    raise self._untrusted()
                raise Unreachable(
                    f"{self} does not answer; is {ZOOKEEPER_QUORUM.key} right, and does a majority of its "
                    "servers run?"
                )

    @property
    def is_dead(self) -> bool:
        """Whether kazoo has given up: the server refused the credentials, or it met an error of its own."""
        routine = self._kazoo._connection._connection_routine
        return not self._closed and routine is not None and not routine.is_alive()

    def revive(self) -> None:
        """Connects again although kazoo has given up."""
        self._kazoo.stop()
        self._kazoo.start_async()

    def close(self) -> None:
        """Ends the session, and so removes its nodes. Bounded: a frozen server is not waited for any longer
        than for another answer. Safe to repeat."""
        if self._closed:
            return
        self._closed = True
        self._kazoo.remove_listener(self._changed)
        ending = threading.Thread(target=self._end, name="zookeeper-close", daemon=True)
        ending.start()
        ending.join(self._settings.request_s)
        if ending.is_alive():
            _log.warning("event=zookeeper_close_is_slow servers=%s", self._settings.servers)

    def _end(self) -> None:
        try:
            self._kazoo.stop()
            self._kazoo.close()
        except KAZOO_ERRORS as error:
            _log.warning("event=zookeeper_close_failed servers=%s error=%r", self._settings.servers, error)

    def _changed(self, state: KazooState) -> None:
        if state == KazooState.CONNECTED:
            self._live.set()
        else:
            self._refused = self._kazoo.client_state == KeeperState.AUTH_FAILED
            self._live.clear()
        if self._on_link is not None:
            self._on_link(_LINKS[state])

    # --- requests ---------------------------------------------------------------------------------

    def once(self, ask: Callable[[KazooClient], Any], deadline_s: float | None = None) -> Any:
        """The answer to one request, which is sent once; kazoo's errors are raised as they are.

        Args:
            ask: Calls an ``*_async`` method.
            deadline_s: Of the monotonic clock; None: the usual wait from now on.
        """
        wait_s = self._settings.request_s if deadline_s is None else deadline_s - time.monotonic()
        return ask(self._kazoo).get(timeout=max(wait_s, 0.001))

    def read(self, ask: Callable[[KazooClient], Any], deadline_s: float | None = None) -> Any:
        """The answer to a request that changes nothing; sent again if its connection was lost.

        Raises:
            NoNodeError: as kazoo has it.
            ConfigError: access is denied.
            Unreachable: no answer in time.
        """
        deadline_s = deadline_s or time.monotonic() + self._settings.request_s
        for attempt in range(self._settings.retries + 1):
            self.wait_connected(deadline_s)
            try:
                return self.once(ask, deadline_s)
            except NO_ANSWER as error:
                if self._kazoo._connection.refused:
                    raise self._denied() from error
                if attempt == self._settings.retries or time.monotonic() >= deadline_s:
                    raise Unreachable(f"{self} did not answer: {_said(error)}") from error
                self._pause(deadline_s)
            except NoNodeError:
                raise
            except KazooException as error:
                raise self.translated(error) from error
        raise AssertionError("the last attempt returns or raises")

    def value(self, path: str, deadline_s: float | None = None) -> tuple[bytes, ZnodeStat] | None:
        """What a node holds, with all writes that were done before; None: there is no such node."""
        try:
            found: tuple[bytes, ZnodeStat] = self.read(lambda k: _synced(k, path).get_async(path), deadline_s)
        except NoNodeError:
            return None
        return found

    def children(self, path: str) -> list[str] | None:
        """The names of the nodes below a path; None: there is no such node. Asked as `value`."""
        try:
            found: list[str] = self.read(lambda k: _synced(k, path).get_children_async(path))
        except NoNodeError:
            return None
        return found

    def stats(self, paths: list[str]) -> list[ZnodeStat | None]:
        """The state of each node, by requests that travel together; None: there is no such node."""

        def ask(kazoo: KazooClient) -> Any:
            return _All([_synced(kazoo, paths[0]).exists_async(path) for path in paths])

        found: list[ZnodeStat | None] = self.read(ask)
        return found

    def transaction(self) -> TransactionRequest:
        return self._kazoo.transaction()

    def translated(self, error: KazooException) -> UnistreamError:
        """One of kazoo's errors as one of ours; nothing was changed by what was refused."""
        match error:
            case NoAuthError() | AuthFailedError() | SessionClosedRequireSaslError():
                return self._denied()
            case UnimplementedError():
                return ConfigError(f"{self} is too old; {_dotted(VERSION_LEAST)} is needed")
        return Unreachable(f"{self} refused a request: {error!r}; nothing was changed")

    def _untrusted(self) -> ConfigError:
        return ConfigError(
            f"{self} cannot be reached by TLS: {self._kazoo._connection.tls_failure}; correct "
            f"{ZOOKEEPER_SSL_CA.key} and the options next to it, or the port in {ZOOKEEPER_QUORUM.key}"
        )

    def _denied(self) -> ConfigError:
        settings = self._settings
        as_whom = f"these credentials ({settings.scheme})" if settings.scheme else "no credentials"
        return ConfigError(
            f"{self} denies access to {settings.layout.folder} with {as_whom}; correct "
            f"{ZOOKEEPER_AUTHORIZATION.key}, or use another high-availability.cluster-id"
        )

    def _pause(self, deadline_s: float) -> None:
        """A moment, so that kazoo can notice what happened to its connection."""
        time.sleep(max(0.0, min(_POLL_S, deadline_s - time.monotonic())))

    def _described(self) -> str:
        with suppress(OSError, *KAZOO_ERRORS):
            return str(self._kazoo.command(b"srvr"))
        return ""


class _All:
    """Answers to several requests, as one."""

    def __init__(self, answers: list[Any]) -> None:
        self._answers = answers

    def get(self, timeout: float) -> list[Any]:
        deadline_s = time.monotonic() + timeout
        return [answer.get(timeout=max(deadline_s - time.monotonic(), 0.001)) for answer in self._answers]


def server_version(described: str) -> tuple[int, int] | None:
    """The server's version in its answer to the command ``srvr``; None: the server does not say.

    >>> server_version("Zookeeper version: 3.9.5-abc, built on 2025-01-01")
    (3, 9)
    """
    found = _VERSION.search(described)
    return (int(found[1]), int(found[2])) if found else None


def _synced(kazoo: KazooClient, path: str) -> KazooClient:
    """What is asked next on this connection is answered with all that was written until now: a server answers
    in the order of the requests, and sync waits for the writes. (Its own answer only matters where the server
    serves nobody without SASL: it says so once, to the first request, and ends the connection.)"""

    def look(answer: Any) -> None:
        if isinstance(answer.exception, SessionClosedRequireSaslError):
            kazoo._connection.refused = True

    kazoo.sync_async(path).rawlink(look)
    return kazoo


def _kazoo(settings: ZooKeeperSettings) -> _Kazoo:
    user, _, password = settings.credentials.reveal().partition(":")
    sasl = {"mechanism": "DIGEST-MD5", "username": user, "password": password}
    longest_s = min(settings.retry_wait_s, settings.session_s / _RECONNECTS_IN_SESSION)
    digest = settings.scheme not in {"", SASL}
    return _Kazoo(
        sasl_options=sasl if settings.scheme == SASL else None,
        handler=None if settings.tls is None else _TlsHandler(settings.tls.context()),
        use_ssl=settings.tls is not None,
        hosts=str(settings.servers),
        logger=_kazoo_log,
        timeout=settings.session_s,
        default_acl=CREATOR_ALL_ACL if settings.is_private else OPEN_ACL_UNSAFE,
        auth_data=[(settings.scheme, settings.credentials.reveal())] if digest else None,
        connection_retry=KazooRetry(
            max_tries=-1, delay=min(_RECONNECT_FIRST_S, longest_s), max_delay=longest_s
        ),
    )


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
