"""Limits a worker's process to the configured memory and cores.

Memory is monitored rather than limited by the kernel: RLIMIT_AS counts address space, of which Arrow's
allocator and the threads reserve far more than they use, and RLIMIT_DATA turns the excess into a crash inside
whichever library allocates next. Here the process ends as a container would, with a line in its log.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa

from unistream.base.config import Configuration
from unistream.base.limits import KIB, MIB
from unistream.core.memory import cpu_threads, memory_limit
from unistream.port.host import EXIT_OUT_OF_MEMORY

CHECK_S: Final = 0.2  # at 1 GB/s of fresh pages it is 200 MB late

_OWN_PAGES: Final = re.compile(rb"^(?:RssAnon|RssShmem):\s+(\d+) kB$", re.MULTILINE)
_log = logging.getLogger(__name__)


def apply_limits(config: Configuration, slots: int) -> None:
    """Applies the limits to this process. Call it once, in a worker process only.

    Raises:
        ConfigError: memory options contradict each other.
    """
    threads = cpu_threads(config)
    if threads is not None:
        pa.set_cpu_count(threads)
    _log.info(
        "event=arrow_set_up allocator=%s threads=%d", pa.default_memory_pool().backend_name, pa.cpu_count()
    )
    limit = memory_limit(config, slots)
    if limit is not None and sys.platform == "linux":
        MemoryWatch(limit).start()


class MemoryWatch:
    """Ends this process when it holds more than `limit` bytes of its own (files that it maps do not count).

    Python code that never releases the GIL delays it.
    """

    def __init__(
        self,
        limit: int,
        *,
        used: Callable[[], int] | None = None,
        on_excess: Callable[[str], None] | None = None,
    ) -> None:
        self._limit = limit
        self._used = used or own_memory
        self._on_excess = on_excess or _end_process
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(CHECK_S):
            used = self._used()
            if used > self._limit:
                self._on_excess(
                    f"the process holds {used // MIB} MiB, its limit is {self._limit // MIB} MiB "
                    "(taskmanager.memory.process.size, or the resources of its slot sharing group)"
                )
                return


def own_memory() -> int:
    """Bytes of this process that no file backs."""
    status = Path("/proc/self/status").read_bytes()
    return sum(int(kib) for kib in _OWN_PAGES.findall(status)) * KIB


def _end_process(why: str) -> None:
    _log.error("event=out_of_memory action=exit reason=%r", why)
    logging.shutdown()
    os._exit(EXIT_OUT_OF_MEMORY)
