"""Which token a client presents to a cluster.

    one that `give_access` has named         what that has given: several clusters, each with its own
    a cluster of this user on this machine   the owner's, from its entry in `home`: nobody types anything
    any other                                the one of the environment: UNISTREAM_TOKEN, or the first line of
                                             the file that UNISTREAM_TOKEN_FILE names

A token of the environment is not sent to a cluster of this user's own, and none at all in plain text to
another machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from unistream.base.errors import ConfigError
from unistream.base.hosts import is_loopback
from unistream.client.machine import home

TOKEN_VARIABLE: Final = "UNISTREAM_TOKEN"  # noqa: S105  # its name
TOKEN_FILE_VARIABLE: Final = "UNISTREAM_TOKEN_FILE"  # noqa: S105
CA_FILE_VARIABLE: Final = "UNISTREAM_CA_FILE"


class GivenAccess(NamedTuple):
    """What this process was given for one cluster. `token`, `ca_file`: "": look elsewhere."""

    token: str = ""
    ca_file: str = ""

    def variables(self) -> dict[str, str]:
        """The same, for the environment of a child process."""
        named = {TOKEN_VARIABLE: self.token, CA_FILE_VARIABLE: self.ca_file}
        return {name: value for name, value in named.items() if value}


_given: Final[dict[tuple[str, int], GivenAccess]] = {}


def give_access(host: str, port: int, access: GivenAccess) -> None:
    """What clients of this process show to, and believe of, the cluster there from now on: code that knows
    several clusters has no environment for each of them."""
    _given[host.lower(), port] = access


def given_access(host: str, port: int) -> GivenAccess:
    """What was given for the cluster there."""
    return _given.get((host.lower(), port), GivenAccess())


def token_for(url: str) -> str | None:
    """The token for the cluster whose URL this is, or begins with; None: there is none to present.

    Raises:
        ConfigError: the file of the environment cannot be read.
    """
    at = urlsplit(url)
    given = given_access(at.hostname or "", at.port or 0).token
    if given:
        return given if _is_private(url) else None
    own = next((one for one in _clusters() if f"{url}/".startswith(f"{one.url}/")), None)
    if own is not None:
        return own.token.reveal() or None
    return token_in_environment() if _is_private(url) else None


def entry_at(host: str, port: int) -> home.ClusterEntry | None:
    """The cluster of this user that answers there; None: none of this machine does."""
    for entry in _clusters():
        at = urlsplit(entry.url)
        if at.port == port and at.hostname == host.lower():
            return entry
    return None


def worker_secret_for(control: str) -> str | None:
    """What a worker presents to the cluster that listens there, such as ``grpc+tcp://127.0.0.1:6123``; None:
    no cluster of this user does."""
    for entry in _clusters():
        if entry.control and _same(entry.control, control):
            return entry.workers.reveal()
    return None


def _clusters() -> list[home.ClusterEntry]:
    """The newest first. Where the home cannot be made, as in a container without one, no cluster is."""
    try:
        return home.clusters()[::-1]
    except ConfigError:
        return []


def _same(one: str, other: str) -> bool:
    """Whether both are one port of this machine, however that is called."""
    first, second = urlsplit(one), urlsplit(other)
    return first.port == second.port and all(is_loopback(parts.hostname) for parts in (first, second))


def token_in_environment() -> str | None:
    """The token that variables of the environment have or name; None: there is none. Raises ConfigError: its
    file cannot be read."""
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    path = os.environ.get(TOKEN_FILE_VARIABLE, "")
    if token or not path:
        return token or None
    try:
        return Path(path).read_text("utf-8").split("\n", 1)[0].strip() or None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{TOKEN_FILE_VARIABLE}={path} cannot be read: {error}") from error


def _is_private(url: str) -> bool:
    """Nobody on the way to it can read what is sent."""
    parts = urlsplit(url)
    return parts.scheme == "https" or is_loopback(parts.hostname)
