"""A network that nobody else has: all of its ports are free, also those that everybody wants."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

CLONE_NEWNET: Final = 0x4000_0000
SET_FLAGS, UP = 0x8914, 0x1  # of an interface: SIOCSIFFLAGS, IFF_UP


@contextmanager
def own_network() -> Iterator[None]:
    """This thread, what it starts, and nobody else are in a network of their own, with a loopback interface.

    Skips the test where the system does not allow that, which is for root.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as before:
        if libc.unshare(CLONE_NEWNET) != 0:
            pytest.skip(f"no network namespaces here: {os.strerror(ctypes.get_errno())}")
        try:
            with socket.socket() as any_socket:
                fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh", b"lo", UP))
            yield
        finally:
            assert libc.setns(before.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
