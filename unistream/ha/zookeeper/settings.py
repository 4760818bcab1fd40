"""How ZooKeeper is reached, from the options of a cluster; and where a cluster keeps its data there."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Final

from unistream.base import config as options
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.secrets import Secret, resolved
from unistream.base.servers import ZooKeeperServers

DIGEST: Final = "digest"
SASL: Final = "sasl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Files are PEM. `ca`: trusted besides the authorities of this machine. `certificate`, `key`: of this
    client; None: it shows none."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    verify_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """Reads the files. Raises ConfigError: one cannot be used."""
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
        context.check_hostname = self.verify_hostname
        if (ca := self.ca) is not None:
            _loaded(options.ZOOKEEPER_SSL_CA.key, ca, lambda: context.load_verify_locations(ca))
        if (own := self.certificate) is not None:
            load = partial(context.load_cert_chain, own, self.key, _no_password)
            _loaded(options.ZOOKEEPER_SSL_CERTIFICATE.key, own, load)
        return context


def _no_password() -> str:
    """An empty password. Without it OpenSSL asks at the terminal for the one of an encrypted key."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSettings:
    """Times are in seconds.

    Attributes:
        request_s: Longest wait for a connection, and for the answer to a request.
        scheme: Of the credentials: "", "digest" or "sasl".
        credentials: ``user:password``.
        is_private: Only clients with the same credentials may read and write.
        tls: None: connections are not encrypted.
    """

    servers: ZooKeeperServers
    root: str
    cluster_id: str
    session_s: float
    request_s: float
    retry_wait_s: float
    retries: int
    scheme: str
    credentials: Secret
    is_private: bool
    tls: Tls | None = None

    @property
    def layout(self) -> ZnodePaths:
        return ZnodePaths(f"{self.root}/{self.cluster_id}")


@dataclass(frozen=True, slots=True)
class ZnodePaths:
    """The znodes of a cluster, all below `folder`.

    cluster          what wrote this, and in which format
    leader           where the leader is reached; goes with the leader's session
    election/…       one for each contender; goes with its session
    jobs/…, …        what the leader stored
    """

    folder: str

    @property
    def marker(self) -> str:
        return f"{self.folder}/cluster"

    @property
    def leader(self) -> str:
        return f"{self.folder}/leader"

    @property
    def election(self) -> str:
        return f"{self.folder}/election"


def zookeeper_settings(config: Configuration) -> ZooKeeperSettings:
    """The settings that the options ``high-availability.*`` make.

    Raises:
        ConfigError: no servers, credentials that cannot be used, or options that contradict each other.
    """
    scheme, credentials = _authorization(config.find(options.ZOOKEEPER_AUTHORIZATION))
    is_private = config.get(options.ZOOKEEPER_ACL) == "creator"
    if is_private and not scheme:
        raise ConfigError(
            f"{options.ZOOKEEPER_ACL.key} is creator, and there are no credentials of a creator: set "
            f"{options.ZOOKEEPER_AUTHORIZATION.key}, or let {options.ZOOKEEPER_ACL.key} be open"
        )
    return ZooKeeperSettings(
        servers=config.get(options.ZOOKEEPER_QUORUM),
        root=config.get(options.ZOOKEEPER_ROOT),
        cluster_id=config.get(options.HA_CLUSTER_ID),
        session_s=config.get(options.ZOOKEEPER_SESSION_TIMEOUT) / 1000,
        request_s=config.get(options.ZOOKEEPER_CONNECTION_TIMEOUT) / 1000,
        retry_wait_s=config.get(options.ZOOKEEPER_RETRY_WAIT) / 1000,
        retries=config.get(options.ZOOKEEPER_RETRY_ATTEMPTS),
        scheme=scheme,
        credentials=credentials,
        is_private=is_private,
        tls=_tls(config),
    )


def _tls(config: Configuration) -> Tls | None:
    """Raises ConfigError: a file cannot be used, or there are files and no TLS."""
    named = (options.ZOOKEEPER_SSL_CA, options.ZOOKEEPER_SSL_CERTIFICATE, options.ZOOKEEPER_SSL_KEY)
    files = {option.key: path for option in named if (path := config.find(option)) is not None}
    if not config.get(options.ZOOKEEPER_SSL):
        if files:
            raise ConfigError(
                f"{next(iter(files))} has no effect without {options.ZOOKEEPER_SSL.key}: true; set both"
            )
        return None
    ca, certificate, key = (config.find(option) for option in named)
    if (certificate is None) != (key is None):
        raise ConfigError(
            f"{options.ZOOKEEPER_SSL_CERTIFICATE.key} and {options.ZOOKEEPER_SSL_KEY.key} need each other"
        )
    tls = Tls(
        ca=ca, certificate=certificate, key=key, verify_hostname=config.get(options.ZOOKEEPER_SSL_HOSTNAME)
    )
    tls.context()
    return tls


def _loaded(key: str, path: str, load: Callable[[], None]) -> None:
    try:
        load()
    except OSError as error:
        why = f"it is not what is needed ({error})" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"{key}: cannot use {path}: {why}") from error


def _authorization(value: str | None) -> tuple[str, Secret]:
    key = options.ZOOKEEPER_AUTHORIZATION.key
    if value is None:
        return "", Secret("")
    scheme, _, credentials = resolved(key, value).partition(":")
    user, colon, _ = credentials.partition(":")
    if scheme not in {DIGEST, SASL} or not user or not colon:
        raise ConfigError(f"{key} is not of the form digest:user:password or sasl:user:password")
    if scheme == SASL and find_spec("puresasl") is None:
        raise ConfigError(f"{key} with the scheme sasl needs pure-sasl, which is not installed here")
    return scheme, Secret(credentials)
