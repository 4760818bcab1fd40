"""All that goes over the switch of `Hosts`: what any host on a network could read of others."""

from __future__ import annotations

import socket
import threading
from collections import defaultdict
from typing import Final, NamedTuple, Self

from tests.eventually import WAIT_S
from tests.support.servers.hosts import Hosts
from unistream.base.closing import Closing

ALL_PROTOCOLS: Final = 0x0003  # <linux/if_ether.h>
IPV4, IPV6, TCP = 0x0800, 0x86DD, 6
SO_RCVBUFFORCE: Final = 33  # <asm-generic/socket.h>
FRAME_BYTES: Final = 1 << 17  # segments of a virtual link are up to 64 KiB
BUFFER_BYTES: Final = 1 << 26


class Flow(NamedTuple):
    """One direction of a TCP connection."""

    source: str
    source_port: int
    target: str
    target_port: int


class Wiretap(Closing):
    """Notes the bytes of each TCP connection between hosts, in the order in which they come."""

    def __init__(self, hosts: Hosts) -> None:
        with hosts.inside():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        self._socket.settimeout(0.1)
        self.flows: Final = defaultdict[Flow, bytearray](bytearray)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wiretap", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        """Ends; `flows` stay."""
        self._ends.set()
        self._thread.join(WAIT_S)
        self._socket.close()

    def seen(self, word: str) -> list[Flow]:
        """The connections in which it was to be read."""
        return [flow for flow, said in list(self.flows.items()) if word.encode() in said]

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                frame, where = self._socket.recvfrom(FRAME_BYTES)
            except TimeoutError:
                continue
            if where[2] == socket.PACKET_OUTGOING:  # it was seen when it came in
                continue
            found = _segment(frame)
            if found is not None:
                self.flows[found[0]] += found[1]


def _segment(frame: bytes) -> tuple[Flow, bytes] | None:
    """Whose bytes a frame carries; None: it is not of TCP."""
    kind = int.from_bytes(frame[12:14])
    packet = frame[14:]
    if kind == IPV4 and packet[9] == TCP:
        family, length, ends = socket.AF_INET, (packet[0] & 15) * 4, (packet[12:16], packet[16:20])
        packet = packet[: int.from_bytes(packet[2:4]) or None]  # 0: longer than such a header can say
    elif kind == IPV6 and packet[6] == TCP:
        family, length, ends = socket.AF_INET6, 40, (packet[8:24], packet[24:40])
    else:
        return None
    segment = packet[length:]
    ports = int.from_bytes(segment[0:2]), int.from_bytes(segment[2:4])
    source, target = (socket.inet_ntop(family, end) for end in ends)
    return Flow(source, ports[0], target, ports[1]), segment[(segment[12] >> 4) * 4 :]
