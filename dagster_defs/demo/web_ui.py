"""Dagster's UI as a child process that is known to serve.

``dagster dev`` goes on, silently, when its webserver cannot bind the port: a browser then finds nothing, or
the server of another program. So the port is looked at before anything is started, and the address is
given to people once the webserver itself has answered there. When its daemon or its webserver is killed it
ends with exit code 0, so whoever needs it takes any end for a failure.
"""

from __future__ import annotations

import time
from typing import Final

import httpx

from dagster_defs.demo.processes import POLL_S, WAIT_S, Child, DemoError
from unistream.testing.devtools.process import port_is_free

HOST: Final = "127.0.0.1"
WHAT: Final = "Dagster (its webserver, or its daemon)"


def url(port: int) -> str:
    return f"http://{HOST}:{port}"


def require_free(port: int) -> None:
    """Raises DemoError: another process listens on it."""
    if not port_is_free(port):
        raise DemoError(
            f"port {port}, meant for Dagster's UI, is taken by another process: end that one, "
            "or choose another port (make … PORT=N, or --port N)"
        )


def command(port: int, *code: str) -> list[str]:
    """The module with its arguments, for `Child`. `code`: which code location."""
    return ["dagster", "dev", *code, "-h", HOST, "-p", str(port)]


def wait_until_served(child: Child, port: int) -> None:
    """Until the webserver of `child` answers.

    Raises:
        DemoError: it has ended, or does not answer in time; with the end of its log.
    """
    deadline = time.monotonic() + WAIT_S
    while not _serves(port):
        child.check_alive()
        if time.monotonic() > deadline:
            raise DemoError(
                f"Dagster's UI does not answer at {url(port)} after {WAIT_S:.0f} s\n{child.tail()}"
            )
        time.sleep(POLL_S)


def _serves(port: int) -> bool:
    """Whether it is Dagster's webserver that answers."""
    try:
        return "dagster_webserver_version" in httpx.get(f"{url(port)}/server_info", timeout=10).json()
    except (httpx.HTTPError, ValueError):  # not yet; or a server of another kind
        return False
