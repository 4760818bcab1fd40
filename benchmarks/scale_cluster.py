"""A master in a process of its own and simulated workers in some others, for `benchmarks.scale`."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.scale_master import begin, counts_in
from unistream.base.closing import Closing
from unistream.client.machine import home
from unistream.client.remote.rest_client import RestClient
from unistream.testing.devtools.process import start_bound

POLL_S: Final = 0.1
END_S: Final = 60.0  # for a process to end by itself
ANSWER_S: Final = 60.0  # for a process of workers to say how far it is
STDERR_SHOWN: Final = 3_000


class Waited(SystemExit):
    """Something did not come in time: the reason, and what the master has said."""


class Masters:
    """Where the masters of one cluster are started: a folder, with a home of its own for this process.

    Args:
        options: Of all of them.
    """

    def __init__(self, folder: Path, options: Mapping[str, str]) -> None:
        self.folder = folder
        self._options = dict(options)
        os.environ[home.HOME_VARIABLE] = str(folder / "home")

    def start(self, name: str, workdir: str) -> Master:
        """A master, which may not lead yet."""
        options = [text for pair in self._options.items() for text in ("-D", "=".join(pair))]
        words = ["cluster", "start", "-t", "standalone", "--json", "--workdir", str(self.folder / workdir)]
        return Master(self.folder / name, [*words, *options])


class Master(Closing):
    """One process."""

    def __init__(self, files: Path, words: Sequence[str]) -> None:
        self._counts, self._err = files.with_suffix(".counts"), files.with_suffix(".log")
        begin(self._counts)
        command = [sys.executable, "-m", "benchmarks.scale_master", str(self._counts), *words]
        self.process = start_bound(command, self._err, Path.cwd())  # it does not outlive the benchmark
        self._seen = psutil.Process(self.process.pid)

    def leads(self) -> bool:
        """It has said where clients and workers find it."""
        if self.process.poll() is not None:
            raise Waited(f"the master ended with exit code {self.process.returncode}:\n{self.said}")
        return self._entry() is not None

    def _entry(self) -> home.ClusterEntry | None:
        return next((one for one in home.clusters() if one.pid == self.process.pid and one.control), None)

    @property
    def entry(self) -> home.ClusterEntry:
        """Where it is found."""
        found = self._entry()
        if found is None:
            raise Waited(f"this master does not lead:\n{self.said}")
        return found

    def client(self, timeout_s: float) -> RestClient:
        return RestClient(self.entry.url, timeout_s=timeout_s)

    @property
    def said(self) -> str:
        return self._err.read_text(errors="replace")[-STDERR_SHOWN:]

    # --- what it costs ----------------------------------------------------------------------------

    def usage(self) -> dict[str, float]:
        """Processor time and writes since its start; memory, threads and files now."""
        times = self._seen.cpu_times()
        return {
            "cpu_s": times.user + times.system,
            "rss_mb": self._seen.memory_info().rss / 2**20,
            "peak_mb": self._peak_mb(),
            "threads": self._seen.num_threads(),
            "files": self._seen.num_fds(),
            **counts_in(self._counts),
        }

    def _peak_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024

    def forget_peak(self) -> None:
        """The peak of its memory is that from now on."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    # --- its end ----------------------------------------------------------------------------------

    def kill(self) -> None:
        """Ends it at once, as a crash does."""
        self.process.kill()
        self.process.wait(END_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()


class _Process(Closing):
    """One process of workers."""

    def __init__(self, number: int, relay: Callable[[_Process, str], None]) -> None:
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._writing = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.scale_workers", f"p{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._relay = relay
        self._reader = threading.Thread(target=self._read, name="swarm-output", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text)
            if "barrier" in line:
                self._relay(self, line["barrier"])
            else:
                self._answers.put(line)

    def order(self, **order: Any) -> None:
        assert self._process.stdin is not None
        try:
            with self._writing:
                self._process.stdin.write(json.dumps(order) + "\n")
                self._process.stdin.flush()
        except BrokenPipeError as error:
            code = self._process.poll()
            raise Waited(f"a process of simulated workers has ended with exit code {code}") from error

    def ask(self, **order: Any) -> dict[str, Any]:
        self.order(**order)
        try:
            return self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            raise Waited(f"simulated workers did not answer for {ANSWER_S:.0f} s") from None

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_S)
        self._reader.join(END_S)


class Swarm(Closing):
    """All simulated workers of a cluster, in some processes."""

    def __init__(self, processes: int) -> None:
        self._processes: list[_Process] = []
        try:
            for number in range(processes):
                self._processes.append(_Process(number, self._relay))
        except BaseException:
            self.close()
            raise

    def _relay(self, sender: _Process, message: str) -> None:
        """A barrier reaches the tasks of the other processes."""
        for process in self._processes:
            if process is not sender:
                process.order(do="barrier", message=message)

    def join(self, master: home.ClusterEntry, workers: int, slots: int) -> None:
        """So many workers register there, and forget what they had."""
        for number, process in enumerate(self._processes):
            share = len(range(number, workers, len(self._processes)))
            address, secret = f"grpc+tcp://{master.control.removeprefix('grpc+tcp://')}", master.workers
            process.order(do="join", master=address, secret=secret.reveal(), workers=share, slots=slots)

    def fail(self, job: str, vertex: str, index: int) -> None:
        answers = [p.ask(do="fail", job=job, vertex=vertex, index=index) for p in self._processes]
        if not any(answer["failed"] for answer in answers):
            raise Waited(f"no simulated worker has task {vertex}#{index} of job {job}")

    def forget(self) -> None:
        for process in self._processes:
            process.order(do="forget")

    def figures(self) -> Figures:
        return Figures([process.ask(do="figures")["figures"] for process in self._processes])

    def close(self) -> None:
        for process in self._processes:
            process.close()


class Figures:
    """How far all workers are, and what was on the wire since `Swarm.forget`."""

    def __init__(self, parts: Sequence[Mapping[str, Any]]) -> None:
        self.counts: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.states: Counter[str] = Counter()
        for part in parts:
            self.counts.update(part["counts"])
            self.bytes.update(part["bytes"])
            self.states.update(part["states"])
        self.latencies_ms = sorted(1000 * one for part in parts for one in part["latencies"])
        self.states_s: float = max(part["states_s"] for part in parts)
        self.cpu_s: float = sum(part["cpu_s"] for part in parts)

    @property
    def failures(self) -> dict[str, int]:
        """What did not go as it should."""
        return {
            name: count
            for name, count in self.counts.items()
            if count and (name.startswith("failed") or name in ("refused", "beats refused", "not answered"))
        }


def await_that(
    is_so: Callable[[], bool],
    what: str,
    timeout_s: float,
    said: Callable[[], str] = lambda: "",
    *,
    poll_s: float = POLL_S,
) -> float:
    """Returns once `is_so`: the seconds that took. `said`: of the master, for the failure."""
    began_s = time.monotonic()
    while not is_so():
        if time.monotonic() - began_s > timeout_s:
            raise Waited(f"after {timeout_s:.0f} s (--timeout) still not: {what}\n{said()}")
        time.sleep(poll_s)
    return time.monotonic() - began_s
