"""Host names and addresses as text."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str | None) -> bool:
    """Whether nothing but this machine answers there: `localhost`, and every loopback address.

    >>> is_loopback("127.8.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("example.com")
    (True, True, False, False)
    """
    if host is None:
        return False
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def in_url(host: str) -> str:
    """The host as it stands in a URL: a literal of IPv6 has brackets.

    >>> in_url("::1"), in_url("jobs")
    ('[::1]', 'jobs')
    """
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
