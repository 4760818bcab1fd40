"""How a worker on another host becomes one of a cluster: a token lets it have its key certified, once.

What it has got is kept in the home of its user (0600), so that a worker that is started again needs no other
token for as long as the certificate lasts.

    <home>/memberships/<SHA-256 of the address>.json
"""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import msgspec

from unistream.base import durable_files
from unistream.base.clock import Clock
from unistream.base.errors import UNDECODABLE, AccessDenied, ConfigError, Forbidden
from unistream.base.releases import own_release
from unistream.client.machine import home
from unistream.client.remote.address import LeaderAddress
from unistream.client.remote.answers import decode
from unistream.client.remote.rest_client import RestClient
from unistream.core.access import parsed
from unistream.model.access import JoinAnswer, JoinBody
from unistream.model.credentials import Credentials
from unistream.trust.authority import fingerprint_of
from unistream.trust.pinning import split
from unistream.trust.requests import new_request


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """What a host has of a cluster. `control`: where its workers register."""

    address: str
    credentials: Credentials
    control: str


def joined(address: LeaderAddress, token: str, *, clock: Clock, timeout_s: float) -> Membership:
    """Has the cluster certify a new key, and keeps what it answers; closes `address`.

    Args:
        address: Of its REST API.
        token: Of `unistream cluster token`.
        clock: Of this host.
        timeout_s: Longest wait.

    Raises:
        AccessDenied: the token lets nobody join, or nobody any more; nothing was kept.
        ConfigError: it is no token, or the cluster takes no workers of other hosts; nothing was kept.
        Unreachable: it does not answer; the token may have been used.
    """
    presented = parsed(token)
    if presented is None or not presented.fingerprint:
        raise ConfigError(
            "--join takes a token that 'unistream cluster token' has printed, copied completely"
        )
    name, made = address.name, new_request()
    installed = own_release()
    body = JoinBody(
        request=made.request,
        host=socket.gethostname(),
        clock_ms=clock.wall_ms(),
        version=installed.version,
        python=installed.python,
    )
    with RestClient(address, timeout_s=timeout_s, token=token) as cluster:
        try:
            response = cluster.request("POST", "/unistream/workers", content=msgspec.json.encode(body))
        except Forbidden:
            raise
        except AccessDenied as error:
            why = str(error).partition(". ")[0].rpartition(": ")[2]  # what follows is for clients
            raise AccessDenied(
                f"this host cannot join the cluster at {name}: {why}; make another token with 'unistream "
                "cluster token' there"
            ) from error
    answer = decode(response, JoinAnswer)
    membership = Membership(
        address=name,
        credentials=Credentials(
            name=answer.name,
            certificate=answer.certificate,
            key=made.key,
            roots=answer.roots,
            until_ms=answer.until_ms,
        ),
        control=answer.control,
    )
    path = _path(name)
    durable_files.make_folders(path.parent)
    temporary = durable_files.temporary_of(path)  # there may be an older one, whose certificate has ended
    durable_files.write(temporary, msgspec.json.encode(membership))
    temporary.replace(path)
    durable_files.sync(path.parent)
    return membership


def kept(address: str, now_ms: int) -> Membership | None:
    """What this host has of the cluster at that address; None: nothing, or its certificate has ended.

    Raises:
        ConfigError: what is kept cannot be read.
    """
    path = _path(address)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Membership)
    except FileNotFoundError:
        return None
    except (OSError, *UNDECODABLE) as error:
        raise ConfigError(f"{path} cannot be read: {error}; remove it, and join again with --join") from error
    return found if found.credentials.until_ms > now_ms else None


def is_of(membership: Membership, token: str) -> bool:
    """Whether it is of the cluster that has made the token: then no other certificate is needed."""
    presented = parsed(token)
    roots = split(membership.credentials.roots)
    return presented is not None and presented.fingerprint in {fingerprint_of(root) for root in roots}


def _path(address: str) -> Path:
    return home.home() / "memberships" / f"{hashlib.sha256(os.fsencode(address)).hexdigest()[:32]}.json"
