"""Origins of web pages, such as `https://jobs.example.com`, and hosts as requests name them."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from unistream.base.errors import ConfigError

PORTS: Final = {"http": 80, "https": 443}
PORT_MAX: Final = 65_535

_HOST: Final = r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_-][a-z0-9._-]{0,252})(?::([0-9]{1,5}))?"
_HOST_HEADER: Final = re.compile(_HOST)
_ORIGIN: Final = re.compile(rf"(https?)://{_HOST}")


class Host(NamedTuple):
    """What a request names: `name` in lower case, a literal of IPv6 in brackets; `port` None: not given."""

    name: str
    port: int | None

    @property
    def is_literal(self) -> bool:
        """An IP address: no name server is asked for it, hence none can lie about it."""
        try:
            ipaddress.ip_address(self.name.strip("[]"))
        except ValueError:
            return False
        return True


class PageOrigin(NamedTuple):
    """The origin of a page: its scheme, host and port, none of them left out."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        port = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}"


def host_of(text: str) -> Host | None:
    """The host that a header `Host` names; None: it names none.

    >>> host_of("LocalHost:8081"), host_of("[0:0:0::1]"), host_of("a/b")
    (Host(name='localhost', port=8081), Host(name='[::1]', port=None), None)
    """
    found = _HOST_HEADER.fullmatch(text.lower())
    return None if found is None else _host(found[1], found[2])


def origin_of(text: str) -> PageOrigin | None:
    """The origin that a header `Origin` names; None: that of no web server, such as "null".

    >>> str(origin_of("HTTPS://Jobs.Example.com:443")), origin_of("null")
    ('https://jobs.example.com', None)
    """
    found = _ORIGIN.fullmatch(text.lower())
    host = None if found is None else _host(found[2], found[3])
    if found is None or host is None:
        return None
    return PageOrigin(found[1], host.name, PORTS[found[1]] if host.port is None else host.port)


def parse_origins(text: str) -> tuple[PageOrigin, ...]:
    """Origins with commas between them. Raises ConfigError: one of them is none; `*` is none.

    >>> [str(origin) for origin in parse_origins("https://a.example, http://b.example:8000")]
    ['https://a.example', 'http://b.example:8000']
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    found = [(part, origin_of(part)) for part in parts]
    wrong = [part[:200] for part, origin in found if origin is None]
    if wrong:
        raise ConfigError(f"{wrong[0]!r} is not an origin such as https://jobs.example.com, without a path")
    return tuple(origin for _, origin in found if origin is not None)


def parse_page_url(text: str) -> str:
    """The address of a web server's pages, without a slash at its end.

    Raises:
        ConfigError: it is none, or has a user, a query or a fragment.

    >>> parse_page_url("https://data.example.com/dagster/")
    'https://data.example.com/dagster'
    """
    parts = urlsplit(text.strip())
    origin = origin_of(f"{parts.scheme}://{parts.netloc}")
    if origin is None or parts.query or parts.fragment or not parts.path.isprintable() or " " in parts.path:
        raise ConfigError(f"{text[:200]!r} is not an address such as https://data.example.com/dagster")
    return f"{origin}{parts.path.rstrip('/')}"


def _host(name: str, port: str | None) -> Host | None:
    if port is not None and not 0 < int(port) <= PORT_MAX:
        return None
    if name.startswith("["):
        try:
            name = f"[{ipaddress.IPv6Address(name[1:-1]).compressed}]"
        except ValueError:
            return None
    return Host(name, None if port is None else int(port))
