"""Whose process is at the other end of a TCP connection within this machine, as the kernel's table says.

A socket whose process has closed it has no owner any more: the table shows user 0 for it, and no inode. So
that is nobody, not root.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LOOKS: Final = 3  # a table that changes while it is read may leave out a line
_LOCAL, _REMOTE, _USER, _INODE = 1, 2, 7, 9


class SocketEnd(NamedTuple):
    """One end of a connection: an IP address and a port."""

    host: str
    port: int


def user_at(here: SocketEnd, there: SocketEnd) -> int | None:
    """The user id of the process that has the other end of a connection; None: none has.

    Args:
        here: Our end.
        there: The other one, on this machine.
    """
    for _ in range(LOOKS):
        for table in TABLES:
            found = user_in(_lines(table), here, there)
            if found is not None:
                return found
    return None


def user_in(lines: Iterable[str], here: SocketEnd, there: SocketEnd) -> int | None:
    """The same, of the lines of a table. Pure."""
    wanted = {(_in_table(there, wide), _in_table(here, wide)) for wide in (False, True)}
    for line in lines:
        fields = line.split()
        if len(fields) > _INODE and (fields[_LOCAL], fields[_REMOTE]) in wanted:
            return int(fields[_USER]) if fields[_INODE] != "0" else None
    return None


def _lines(table: Path) -> list[str]:
    try:
        return table.read_text("ascii").splitlines()
    except FileNotFoundError:  # a machine without IPv6
        return []


def _in_table(end: SocketEnd, wide: bool) -> str:
    """How a table writes it. `wide`: an address of IPv4 in a socket of IPv6, as Java has it."""
    address = ipaddress.ip_address(end.host)
    packed = address.packed
    if wide and address.version == 4:
        packed = bytes(10) + b"\xff\xff" + packed
    words = [packed[start : start + 4] for start in range(0, len(packed), 4)]
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words) + f":{end.port:04X}"
