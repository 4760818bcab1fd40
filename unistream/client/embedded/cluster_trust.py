"""Which servers of a cluster speak TLS, and what they and its workers show: the same for all its leaders.

every server on loopback addresses     none; there is no authority
one of them listens anywhere else      that one, with a certificate of the cluster's own authority, which
                                       the first leader makes; workers get theirs from who starts them
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from unistream.base.clock import Clock, SystemClock
from unistream.base.config import (
    HA_CLUSTER_ID,
    INTERNAL_TLS,
    JOBMANAGER_ADDRESS,
    JOBMANAGER_BIND,
    REST_ADDRESS,
    REST_AUTHENTICATION,
    REST_BIND,
    REST_BIND_PORT,
    REST_PORT,
    REST_TLS,
    SECRET_FILE,
    ConfigOption,
    Configuration,
)
from unistream.base.errors import ConfigError
from unistream.base.hosts import is_loopback
from unistream.base.ids import TaskManagerId
from unistream.base.secrets import SEALING_VARIABLE, Secret
from unistream.model.certificates import CertificateShown, CertificatesShown
from unistream.model.credentials import JOB_MANAGER, Credentials
from unistream.net.address import TCP_SCHEME, own_address_to
from unistream.rest.listener import Listener
from unistream.storage.cluster_secret import cluster_authority, replace_authority
from unistream.trust.authority import Authority, rotated
from unistream.trust.contexts import renewed_context
from unistream.trust.issued import IssuedCertificates, authorities_shown
from unistream.trust.seals import SealKey

ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::", "*", ""})  # noqa: S104  # what a user may say
ELSEWHERE: Final = ("192.0.2.1", "[2001:db8::1]")  # addresses of documents: whatever way leads out of here
DAY_MS: Final = 24 * 3_600_000
REST_LASTS_MS: Final = 30 * DAY_MS
"""The certificate of the REST API lasts so long, and is replaced in the middle of that time."""

PROCESS_LASTS_MS: Final = 365 * DAY_MS
"""The certificate of a process lasts so long: it cannot be replaced while that runs."""

_log: Final = logging.getLogger(__name__)


class ClusterTrust:
    """See the module. Thread-safe.

    Args:
        config: Of the cluster.
        root: URL of the folder where its keys are.

    Raises:
        ConfigError: options contradict each other.
    """

    def __init__(self, config: Configuration, root: str, clock: Clock | None = None) -> None:
        self._config = config
        self._root = root
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._made: Authority | None = None
        self._issued = IssuedCertificates()
        self.rest_bind = config.find(REST_BIND) or config.get(REST_ADDRESS)
        self.encrypts_rest = _encrypts(config, REST_TLS, REST_BIND, self.rest_bind)
        bind = config.get(JOBMANAGER_BIND)
        self.encrypts_workers = _encrypts(config, INTERNAL_TLS, JOBMANAGER_BIND, bind)
        self.asks_for_tokens = _asks_for_tokens(
            config, is_alone=is_loopback(self.rest_bind) and not self.encrypts_workers
        )
        if config.find(REST_AUTHENTICATION) == "none":  # somebody has chosen that
            _log.warning(
                "event=rest_answers_everybody address=%s: %s is none, so every user of this machine can run "
                "code as this cluster's owner",
                self.rest_bind,
                REST_AUTHENTICATION.key,
            )
        self.seal_key = _seal_key(config)

    @property
    def authority(self) -> Authority:
        """Made by the first leader that needs it. Raises as `storage.cluster_authority`."""
        with self._lock:
            if self._made is None:
                self._made = self._read()
            return self._made

    def look_again(self) -> None:
        """A process begins to lead: another leader may have replaced the authority."""
        with self._lock:
            self._made = None

    def rotate(self, keep_ms: int) -> Authority:
        """Replaces the authority; for the leader alone. `keep_ms`: see `trust.authority.rotated`.

        Raises:
            ConfigError: the cluster has none.
            OutcomeUnknown: it may or may not be replaced.
        """
        if not (self.encrypts_rest or self.encrypts_workers):
            raise ConfigError(
                "this cluster has no certificates: all its servers listen on loopback addresses"
            )
        with self._lock:
            self._made = None
            former = self._read()
            record = rotated(former, self._name, now_ms=self._clock.wall_ms(), keep_ms=keep_ms)
            self._made = replace_authority(self._root, record, key=self.seal_key)
            return self._made

    @property
    def _name(self) -> str:
        return self._config.get(HA_CLUSTER_ID)

    def _read(self) -> Authority:
        return cluster_authority(
            self._root, cluster=self._name, now_ms=self._clock.wall_ms(), key=self.seal_key
        )

    @property
    def roots(self) -> str:
        """What clients have to know to verify the REST API, PEM; "": it is not encrypted."""
        return self.authority.roots(self._clock.wall_ms()) if self.encrypts_rest else ""

    def master(self) -> Credentials | None:
        """What the JobManager shows to its workers; None: they are all on this host."""
        return self._process(JOB_MANAGER) if self.encrypts_workers else None

    def join(self, request: str, name: str) -> Credentials | None:
        """Signs the key of a worker's process on another host. See `rest.certificates.Issuer`."""
        if not self.encrypts_workers:
            return None
        now_ms, by = self._clock.wall_ms(), self.authority
        return self._noted(by.sign(request, name, now_ms=now_ms, lasts_ms=PROCESS_LASTS_MS), by, now_ms)

    def worker(self, worker: TaskManagerId) -> Credentials | None:
        """What a worker shows that this cluster starts."""
        return self._process(worker) if self.encrypts_workers else None

    def _process(self, name: str) -> Credentials:
        now_ms, by = self._clock.wall_ms(), self.authority
        return self._noted(by.issue(name, now_ms=now_ms, lasts_ms=PROCESS_LASTS_MS), by, now_ms)

    def _rest(self, hosts: list[str]) -> Credentials:
        now_ms, by = self._clock.wall_ms(), self.authority
        return self._noted(
            by.issue("", now_ms=now_ms, lasts_ms=REST_LASTS_MS, hosts=hosts), by, now_ms, hosts
        )

    def _noted(self, made: Credentials, by: Authority, now_ms: int, hosts: Iterable[str] = ()) -> Credentials:
        """`hosts`: of the REST API, which has no name."""
        reached = tuple(hosts)
        self._issued.note(
            CertificateShown(
                name="" if reached else made.name,
                hosts=reached,
                authority=by.fingerprint,
                issued_ms=now_ms,
                until_ms=made.until_ms,
            )
        )
        return made

    def shown(self) -> CertificatesShown:
        """What there is, without secrets. See `rest.certificates.Issuer`."""
        now_ms = self._clock.wall_ms()
        if not (self.encrypts_rest or self.encrypts_workers):
            return CertificatesShown(now_ms=now_ms)
        rest = self._issued.of("") if self.encrypts_rest else None
        processes, left_out = self._issued.processes(now_ms)
        return CertificatesShown(
            now_ms=now_ms,
            authorities=authorities_shown(self.authority, now_ms),
            rest=rest,
            rest_renewed_ms=None if rest is None else rest.issued_ms + REST_LASTS_MS // 2,
            encrypts_workers=self.encrypts_workers,
            processes=processes,
            left_out=left_out,
        )

    @property
    def rest_host(self) -> str:
        """The name or address by which clients reach the REST API."""
        named = self._config.get(REST_ADDRESS)
        return named if not is_loopback(named) or is_loopback(self.rest_bind) else advertised(self.rest_bind)

    def rest_context(self) -> ssl.SSLContext | None:
        """The TLS of the REST API; None: it is not encrypted."""
        if not self.encrypts_rest:
            return None
        hosts = list(dict.fromkeys(_hosts(self.rest_host, self.rest_bind)))
        return renewed_context(
            lambda: self._rest(hosts),
            self._clock,
            REST_LASTS_MS // 2,
            lambda: self.authority.record.certificate,
        )

    def listener(self) -> Listener:
        """A new socket of the REST API. Raises ConfigError: it cannot listen there."""
        ports = self._config.find(REST_BIND_PORT) or (self._config.get(REST_PORT),)
        return Listener(self.rest_bind, *ports, context=self.rest_context(), host=self.rest_host)

    @property
    def master_host(self) -> str:
        """The name or address by which workers on other hosts reach the JobManager."""
        return self._config.find(JOBMANAGER_ADDRESS) or advertised(self._config.get(JOBMANAGER_BIND))


def advertised(bind: str) -> str:
    """The name or address by which other hosts reach what listens there."""
    return socket.gethostname() if bind in ANY_ADDRESS else bind


def _hosts(rest_host: str, bind: str) -> Iterator[str]:
    """All names and addresses of this host by which a client may ask its REST API."""
    yield from (rest_host, "localhost", "127.0.0.1", "::1", socket.gethostname())
    if bind not in ANY_ADDRESS:
        yield bind
        return
    yield from _routed()
    try:
        found = socket.getaddrinfo(socket.gethostname(), None)
    except OSError:  # this host does not know its own name
        return
    yield from (str(address[4][0]).partition("%")[0] for address in found)


def _routed() -> Iterator[str]:
    """The addresses of this host in its networks, which its name may not have: often that is 127.0.1.1."""
    for elsewhere in ELSEWHERE:
        with contextlib.suppress(ConfigError):
            yield own_address_to(f"{TCP_SCHEME}{elsewhere}:9")


def _encrypts(
    config: Configuration, option: ConfigOption[bool], bind_option: ConfigOption[str], bind: str
) -> bool:
    given = config.find(option)
    if given is False and not is_loopback(bind):
        raise ConfigError(
            f"{option.key} is false, and {bind_option.key} ({bind}) is no loopback address: everybody who "
            "connects there could run code here; leave one of both out"
        )
    return not is_loopback(bind) if given is None else given


def _asks_for_tokens(config: Configuration, *, is_alone: bool) -> bool:
    """`is_alone`: the cluster has nothing to do with other hosts."""
    given = config.find(REST_AUTHENTICATION)
    if given == "none" and not is_alone:
        raise ConfigError(
            f"{REST_AUTHENTICATION.key} is none, and the cluster listens for other hosts, which come with "
            f"tokens ({REST_BIND.key}, {JOBMANAGER_BIND.key}, {INTERNAL_TLS.key}): leave it out"
        )
    return given == "token" or not is_alone


def _seal_key(config: Configuration) -> SealKey | None:
    path = config.find(SECRET_FILE)
    if path is None:
        text = os.environ.get(SEALING_VARIABLE, "")
        return SealKey(Secret(text)) if text else None
    try:
        return SealKey(Secret(Path(path).read_text("utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{SECRET_FILE.key}: {path} cannot be read: {error}") from error
