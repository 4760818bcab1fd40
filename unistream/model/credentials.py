"""What a process shows to others, and whom it believes: certificates of the cluster's own authority.

A certificate names a process by its role, not by its address: `jobmanager`, or the id of a worker. A client
says whom it expects, so a process that has got the address of another one is refused.
"""

from __future__ import annotations

from typing import Final

import msgspec

from unistream.base.errors import ConfigError
from unistream.base.ids import TaskManagerId
from unistream.base.secrets import Secret

JOB_MANAGER: Final = "jobmanager"
DOMAIN: Final = ".unistream.internal"
"""Ends the names in certificates: no name server has it."""


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """A process's certificate with its key, and the authorities whose certificates it accepts.

    Attributes:
        name: Whom the certificate names; for a REST server: the first of its host names.
        certificate: PEM; with those in between, if its authority is not a root.
        key: PEM, of that certificate.
        roots: PEM, one after the other.
        until_ms: When the certificate ends, ms since 1970.
    """

    name: str
    certificate: str
    key: Secret
    roots: str
    until_ms: int


def certified_name(name: str) -> str:
    """How a certificate names a process.

    >>> certified_name("tm-a-1")
    'tm-a-1.unistream.internal'
    """
    return name + DOMAIN


def name_in(certified: str) -> str:
    """The name of a process in its certificate; "": it is none of a process.

    >>> name_in("tm-a-1.unistream.internal"), name_in("example.com")
    ('tm-a-1', '')
    """
    return certified.removesuffix(DOMAIN) if certified.endswith(DOMAIN) else ""


def is_named(worker: TaskManagerId, caller: str) -> bool:
    """Whether a worker's certificate is that of its process. A process that users start registers under a new
    id each time: the name in its certificate, and one more part.

    >>> is_named(TaskManagerId("tm-a-1-9f"), "tm-a-1"), is_named(TaskManagerId("tm-a-1-9f-0"), "tm-a-1")
    (True, False)
    >>> is_named(TaskManagerId("tm-000001"), "")  # nobody else reaches the server
    True
    """
    return not caller or caller in (worker, worker.rpartition("-")[0])


class PeerAddress(msgspec.Struct, frozen=True):
    """Where a process is reached: a Flight location, whom a client has to find there, and the socket that
    peers on the same host take: ``grpc+tls://tm-a-1@10.0.0.7:41234#/tmp/unistream-flight-x/flight.sock``.

    Attributes:
        location: As Flight takes it.
        name: "": the connection is not encrypted, and nobody is expected.
        socket: Path of a unix socket; "": there is none, or `location` is one.
    """

    location: str
    name: str = ""
    socket: str = ""

    def __str__(self) -> str:
        scheme, _, place = self.location.partition("://")
        whole = f"{scheme}://{self.name}@{place}" if self.name else self.location
        return f"{whole}#{self.socket}" if self.socket else whole

    @classmethod
    def parse(cls, text: str) -> PeerAddress:
        """The parts of an address.

        >>> PeerAddress.parse("grpc+tls://tm-1@[::1]:80#/run/x")
        PeerAddress(location='grpc+tls://[::1]:80', name='tm-1', socket='/run/x')
        >>> PeerAddress.parse("grpc+unix:///run/x").name
        ''

        Raises:
            ConfigError: an encrypted one that does not say who is expected there.
        """
        scheme, _, rest = text.partition("://")
        if scheme != TLS:
            return cls(text)
        place, _, socket = rest.partition("#")
        name, _, host = place.rpartition("@")
        if not name:
            raise ConfigError(f"{text!r} does not say who is expected there: {TLS}://NAME@HOST:PORT")
        return cls(f"{scheme}://{host}", name, socket)


def shown_address(address: str) -> str:
    """An address for people: without a socket, which only its own host has.

    >>> shown_address("grpc+tls://tm-1@10.0.0.7:80#/run/x"), shown_address("grpc+unix:///run/x")
    ('grpc+tls://tm-1@10.0.0.7:80', 'grpc+unix:///run/x')
    """
    return address.partition("#")[0] if address.startswith(TLS) else address


def name_at(address: str) -> str:
    """Whom an address names; "": nobody, or it is none.

    >>> name_at("grpc+tls://tm-1@[::1]:80"), name_at("grpc+unix:///run/x"), name_at("grpc+tls://[::1]:80")
    ('tm-1', '', '')
    """
    try:
        return PeerAddress.parse(address).name
    except ConfigError:
        return ""


TLS: Final = "grpc+tls"
