"""Measures a command as a user would see it: whole process trees, by slope, peak memory included.

Throughput by slope: the same job over N and over 4N rows; rows_per_s = 3N / (t(4N) - t(N)), so that what
is paid once (imports, start of workers, deployment) does not count; startup_s is what is left of t(N), and
cpu_s the processor time of the 3N rows. Each
time is the smallest of REPEATS runs: whatever else the machine does can only add to it. Small and large runs
take turns: a slow minute that hit the small ones alone would make the rate too high.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

SAMPLE_S = 0.05
REPEATS = 4
CACHE = Path(os.environ.get("UNISTREAM_CACHE", Path.home() / ".cache/unistream")) / "benchmarks"


@dataclass(frozen=True, slots=True)
class Run:
    """One run: wall seconds, and the largest sum of resident memory over its processes; `cpu_s`: their
    processor time, up to SAMPLE_S less for each."""

    seconds: float
    peak_rss_mb: int
    output: str
    cpu_s: float


def measure(module: Sequence[str], *, timeout_s: float = 900.0) -> Run:
    """Runs ``python -m module…`` to its end.

    Raises:
        SystemExit: it failed; its output is printed.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", *module], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    peak = _PeakMemory(process.pid)
    peak.start()
    try:
        output, errors = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
        peak.stop()
    seconds = time.monotonic() - started
    if process.returncode != 0:
        sys.stderr.write(errors[-4000:])
        raise SystemExit(f"{' '.join(module)} ended with exit code {process.returncode}")
    return Run(seconds, peak.mb, output, peak.cpu_s)


def by_slope(
    module: Sequence[str], *, rows: int, key: str = "--rows", labels: Mapping[str, object]
) -> dict[str, object]:
    """Runs `module` with `key` N and 4N, and prints and returns one result line."""
    runs = [
        (measure([*module, key, str(rows)]), measure([*module, key, str(4 * rows)])) for _ in range(REPEATS)
    ]
    small, large = (_best(size) for size in zip(*runs, strict=True))
    if large.seconds <= small.seconds:
        raise SystemExit(
            f"{4 * rows} rows took {large.seconds:.1f} s, {rows} rows {small.seconds:.1f} s: "
            "the machine is too busy to measure anything"
        )
    rate = 3 * rows / (large.seconds - small.seconds)
    result: dict[str, object] = {
        **labels,
        "rows": 4 * rows,
        "rows_per_s": round(rate),
        "cpu_s": round(large.cpu_s - small.cpu_s, 1),
        "startup_s": round(small.seconds - rows / rate, 2),
        "peak_rss_mb": large.peak_rss_mb,
        "peak_rss_mb_quarter": small.peak_rss_mb,
    }
    print(json.dumps(result), flush=True)
    return result


def _best(runs: Iterable[Run]) -> Run:
    """The fastest; the memory is the largest that any of them took."""
    all_runs = list(runs)
    fastest = min(all_runs, key=lambda run: run.seconds)
    return replace(fastest, peak_rss_mb=max(run.peak_rss_mb for run in all_runs))


class _PeakMemory(threading.Thread):
    """Samples resident memory and processor time of a process and all its descendants."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._root = psutil.Process(pid)
        self._stopped = threading.Event()
        self._peak = 0
        self._cpu: dict[int, float] = {}

    @property
    def cpu_s(self) -> float:
        return sum(self._cpu.values())

    @property
    def mb(self) -> int:
        return self._peak // 2**20

    def run(self) -> None:
        while not self._stopped.wait(SAMPLE_S):
            total = 0
            try:
                for process in (self._root, *self._root.children(recursive=True)):
                    try:
                        total += process.memory_info().rss
                        times = process.cpu_times()
                        self._cpu[process.pid] = times.user + times.system
                    except psutil.NoSuchProcess:
                        continue  # it ended between the two looks
            except psutil.NoSuchProcess:
                return
            self._peak = max(self._peak, total)

    def stop(self) -> None:
        self._stopped.set()
        self.join(timeout=5)
