"""A cable whose frames come later, or not at all, for kernels that have no such link (sch_netem): two TAP
devices in two network namespaces, and a thread for each direction between them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import select
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from tests.eventually import WAIT_S
from unistream.base.closing import Closing

DEVICE: Final = "/dev/net/tun"
NO_CABLES: Final = "" if os.path.exists(DEVICE) else f"no link can be slow here: there is no {DEVICE}"
TUNSETIFF: Final = 0x400454CA  # <linux/if_tun.h>
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
FRAME_BYTES: Final = 1 << 16
LOOK_S: Final = 0.1
FRAMES_MAX: Final = 20_000  # on their way; more are lost, as in a router


class End(NamedTuple):
    """Of a cable. `enter`: lets the calling thread into the namespace for as long as it lasts."""

    device: str
    enter: Callable[[], AbstractContextManager[None]]


class SlowCable(Closing):
    """Makes both devices, which its user configures before `start`; they go with `close`.

    Args:
        delay_s: Of each frame, in both directions.
        loss: Part of the frames that are lost: 0 to 1.
        seed: Decides which.
    """

    def __init__(self, one: End, other: End, *, delay_s: float, loss: float, seed: int) -> None:
        self._delay_s, self._loss = delay_s, loss
        self._ends = threading.Event()
        self.lost = 0
        self._taps: list[int] = []
        try:
            for end in (one, other):
                self._taps.append(_tap(end))
        except BaseException:
            self.close()
            raise
        self._threads = [
            threading.Thread(target=self._run, args=(*taps, seed + n), name="slow-cable", daemon=True)
            for n, taps in enumerate((self._taps, self._taps[::-1]))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._ends.set()
        for thread in getattr(self, "_threads", ()):
            if thread.ident is not None:
                thread.join(WAIT_S)
        while self._taps:
            os.close(self._taps.pop())

    def _run(self, source: int, target: int, seed: int) -> None:
        chance, under_way = random.Random(seed), deque[tuple[float, bytes]]()
        while not self._ends.is_set():
            wait_s = under_way[0][0] - time.monotonic() if under_way else LOOK_S
            if select.select([source], [], [], min(max(wait_s, 0.0), LOOK_S))[0]:
                frame = os.read(source, FRAME_BYTES)
                if chance.random() < self._loss or len(under_way) == FRAMES_MAX:
                    self.lost += 1
                else:
                    under_way.append((time.monotonic() + self._delay_s, frame))
            while under_way and under_way[0][0] <= time.monotonic():
                with contextlib.suppress(OSError):  # the device is down: the frame is lost
                    os.write(target, under_way.popleft()[1])


def _tap(end: End) -> int:
    with end.enter():
        device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", end.device.encode(), IFF_TAP | IFF_NO_PI))
        except OSError:
            os.close(device)
            raise
    return device
