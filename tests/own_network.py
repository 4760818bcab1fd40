"""Tests marked `own_network`: each runs in a process whose network nobody else has.

All ports are free there, also those that everybody wants. A process, not a thread: libraries make threads at
their first use and keep them (deltalake, pyarrow); from that network they reach no server of a later test.

    python -m tests.own_network tests/integration/test_stack_local.py::test_…
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
from typing import Final

import pytest

from tests import budget, goes_on

MARK: Final = "own_network"
CLONE_NEWNET: Final = 0x4000_0000
SET_FLAGS, UP = 0x8914, 0x1  # of an interface: SIOCSIFFLAGS, IFF_UP
NOT_ALLOWED: Final = 77
INSIDE: Final = "UNISTREAM_OWN_NETWORK"
OF_THE_SESSION: Final = ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS", budget.VARIABLE, goes_on.VARIABLE)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Such a test is called in the other process. It is skipped where the system does not allow a network of
    one's own, which is for root."""
    if pyfuncitem.get_closest_marker(MARK) is None or INSIDE in os.environ:
        return None
    test = subprocess.run(
        [sys.executable, "-m", "tests.own_network", pyfuncitem.nodeid],
        cwd=pyfuncitem.config.rootpath,
        env={name: value for name, value in os.environ.items() if name not in OF_THE_SESSION},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if test.returncode == NOT_ALLOWED:
        pytest.skip(test.stdout.strip())
    if test.returncode != 0:
        pytest.fail(test.stdout, pytrace=False)
    return True


def main(test: str) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        print(f"no network namespaces here: {os.strerror(ctypes.get_errno())}")
        return NOT_ALLOWED
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh", b"lo", UP))
    os.environ[INSIDE] = "1"
    return pytest.main(["-q", "-p", "no:xdist", "-p", "no:randomly", "-p", "no:cacheprovider", test])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
