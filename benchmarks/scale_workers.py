"""Very many workers without tasks, in one process: to their master they are as many TaskManagers.

    python -m benchmarks.scale_workers          started by `benchmarks.scale_swarm`; JSON lines in and out

Each has an identity, two connections to the master (lease, reports) and an address of its own, as a real
worker; all addresses are links to one socket, so that one server takes what the master sends. The control
messages, their codec, bundles and connections are the product's own. What a real worker does between two
messages (code, rows, state) is left out: a task runs as soon as it is deployed, and has its snapshot as soon
as the barrier is there, which reaches all tasks of a job at once.

It ends when its input does.
"""

from __future__ import annotations

import base64
import heapq
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from benchmarks.scale_identity import METRICS, STATE, Task, Worker
from unistream.base.clock import SystemClock
from unistream.base.closing import Closing
from unistream.base.errors import UnistreamError
from unistream.base.ids import AllocationId, AttemptId, CheckpointId, JobId, TaskManagerId
from unistream.base.limits import MIB
from unistream.model import messages as msg
from unistream.model.bundle import answer_each, parcels
from unistream.model.codec import decode_for_task_manager, decode_to_task_manager, encode
from unistream.model.deployment import TaskDeployment
from unistream.model.key_groups import key_group_range
from unistream.model.resources import MachineResources
from unistream.net.address import UNIX_SCHEME
from unistream.net.client import FlightControlClient
from unistream.net.server import FlightServer
from unistream.worker.process.reports import GaveUp, call_patiently

THREADS: Final = 16  # for calls to the master
LATENCIES_KEPT: Final = 20_000
PATIENCE_MS: Final = 60_000
CALL_S: Final = 30.0  # for one call: the master shares its processors with this process
CLOCK: Final = SystemClock()


class Swarm(Closing):
    """All workers of this process.

    Args:
        name: Of this process among those of the cluster.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._folder = tempfile.TemporaryDirectory(prefix="us-", dir="/tmp")  # short, for sockets
        self._server = FlightServer("127.0.0.1", control=self._handle, partitions=None)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="swarm")
        self._lock = threading.RLock()
        self._output = threading.Lock()
        self._left = threading.Event()  # of the workers that there are
        self._stop = threading.Event()
        self._generation = 0
        self._workers: list[Worker] = []
        self._slots: dict[AllocationId, Worker] = {}
        self._tasks: dict[AttemptId, Task] = {}
        self._jobs: dict[JobId, dict[AttemptId, Task]] = {}
        self._barriers: set[tuple[JobId, CheckpointId]] = set()
        self._interval_s = 10.0
        self._due: list[tuple[float, int, Worker]] = []
        self._counts: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._latencies: deque[float] = deque(maxlen=LATENCIES_KEPT)
        self._states: Counter[str] = Counter()
        self._states_s = 0.0  # until all tasks had their state at the last barrier
        threading.Thread(target=self._beat, name="beats", daemon=True).start()

    # --- what its starter asks for ----------------------------------------------------------------

    def join(self, master: str, secret: str | None, count: int, slots: int) -> None:
        """So many new workers register, in the background; those that were there are forgotten with their
        tasks, as workers that follow another leader."""
        self._left.set()
        with self._lock:
            self._left = threading.Event()
            former, self._workers = self._workers, []
            self._tasks.clear()
            self._jobs.clear()
            self._slots.clear()
            self._states.clear()
            self._due.clear()
            self._generation += 1
        for worker in former:
            worker.close()
        for number in range(count):
            name = f"{self._name}-{self._generation}-{number:05d}"
            link = Path(self._folder.name) / name
            link.symlink_to(self._server.address.removeprefix(UNIX_SCHEME))
            lease, reports = (FlightControlClient(master, CALL_S, secret=lambda: secret) for _ in range(2))
            worker = Worker(TaskManagerId(name), f"{UNIX_SCHEME}{link}", lease, reports, self._left)
            self._pool.submit(self._register, worker, slots, number / count)

    def fail(self, job: JobId, vertex: str, index: int, why: str) -> bool:
        """One task of the job fails; False: it is not here."""
        with self._lock:
            tasks = list(self._jobs.get(job, {}).values())
            found = next((t for t in tasks if (t.attempt.vertex, t.attempt.index) == (vertex, index)), None)
            if found is not None:
                self._end(found, "FAILED", msg.TaskFailure(kind="Simulated", message=why))
            return found is not None

    def barrier(self, message: msg.TriggerCheckpoint) -> bool:
        """All tasks of the job take the snapshot, once; False: they have it already."""
        attempt, checkpoint_id = message.attempt, message.checkpoint_id
        with self._lock:
            if (attempt.job, checkpoint_id) in self._barriers:
                return False
            self._barriers.add((attempt.job, checkpoint_id))
            began_s = time.monotonic()
            folder = Path(urlsplit(message.directory).path)
            folder.mkdir(parents=True, exist_ok=True)
            for task in self._jobs.get(attempt.job, {}).values():
                acked = msg.CheckpointAcked(
                    attempt=task.attempt,
                    checkpoint_id=checkpoint_id,
                    snapshot=task.snapshot(folder),
                    persisted_bytes=len(STATE),
                    state_bytes=len(STATE),
                )
                self._report(task.worker, acked)
            self._states_s = time.monotonic() - began_s
            return True

    def figures(self) -> dict[str, Any]:
        """How far all of them are."""
        with self._lock:
            times = os.times()
            return {
                "counts": dict(self._counts),
                "states": dict(self._states),
                "bytes": dict(self._bytes),
                "latencies": list(self._latencies),
                "states_s": self._states_s,
                "cpu_s": times.user + times.system,
            }

    def forget_figures(self) -> None:
        """A new measurement begins: what was counted is forgotten, states of tasks are not."""
        with self._lock:
            kept = {"registered": self._counts["registered"]}
            self._counts, self._bytes = Counter(kept), Counter()
            self._latencies.clear()

    def close(self) -> None:
        self._stop.set()
        self._left.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.close()
        self._server.close()
        self._folder.cleanup()

    # --- to the master ----------------------------------------------------------------------------

    def _register(self, worker: Worker, slots: int, phase: float) -> None:
        message = msg.RegisterTaskManager(
            task_manager=worker.id,
            address=worker.address,
            slots=slots,
            pid=os.getpid(),
            host=self._name,
            memory={"framework": 128 * MIB, "task": 512 * MIB, "network": 128 * MIB, "managed": 512 * MIB},
            hardware=MachineResources(cpu_cores=2, memory_bytes=2**34),
        )
        answer = self._call(worker, worker.reports, message)
        with self._lock:
            if not isinstance(answer, msg.Registered):
                self._counts["refused"] += 1
                return
            self._workers.append(worker)
            self._counts["registered"] += 1
            self._interval_s = answer.heartbeat_interval_ms / 1000
            first_s = time.monotonic() + phase * self._interval_s
            heapq.heappush(self._due, (first_s, len(self._workers), worker))

    def _beat(self) -> None:
        """Each worker sends a heartbeat an interval after the last one, or once that is answered."""
        while not self._stop.wait(0.005):
            now_s = time.monotonic()
            with self._lock:
                while self._due and self._due[0][0] <= now_s:
                    self._pool.submit(self._beat_of, *heapq.heappop(self._due))

    def _beat_of(self, due_s: float, number: int, worker: Worker) -> None:
        with self._lock:
            running = tuple((attempt, METRICS) for attempt in worker.tasks)
        beat = msg.Heartbeat(task_manager=worker.id, metrics=running, used={"network": MIB, "process": 2**28})
        answer = self._call(worker, worker.lease, beat)
        now_s = time.monotonic()
        with self._lock:
            if not (worker.left.is_set() or worker.released):
                next_s = max(now_s, due_s + self._interval_s)
                heapq.heappush(self._due, (next_s, number, worker))
            if isinstance(answer, msg.Ack):
                self._counts["beats"] += 1
                self._latencies.append(now_s - due_s)
            elif answer is not None:
                self._counts["beats refused"] += 1

    def _report(self, worker: Worker, *reports: msg.ToJobManager) -> None:
        with self._lock:
            worker.waiting.extend(reports)
            if not worker.sends:
                worker.sends = True
                self._pool.submit(self._send, worker)

    def _send(self, worker: Worker) -> None:
        """As `ReportSender`: what was posted during a request is in the next one."""
        while True:
            with self._lock:
                reports = list(worker.waiting)
                worker.waiting.clear()
                worker.sends = bool(reports)
            if not reports:
                return
            for parcel in parcels(reports):
                self._call(worker, worker.reports, parcel.request)

    def _call(self, worker: Worker, client: FlightControlClient, message: msg.Request) -> msg.Answer | None:
        """The answer; None: the master is gone."""
        left = worker.left
        try:
            answer = call_patiently(client, message, clock=CLOCK, patience_ms=PATIENCE_MS, stop=left)
        except UnistreamError as error:
            if not left.is_set():  # else it was left meanwhile
                why = "not answered" if isinstance(error, GaveUp) else f"failed: {error}"[:200]
                with self._lock:
                    self._counts[why] += 1
            return None
        with self._lock:
            if left.is_set():
                return None
            size = len(encode(message))
            self._bytes["to master"] += size
            self._bytes[f"to master: {type(message).__name__}"] += size
            self._counts["requests to master"] += 1
        return answer

    # --- from the master --------------------------------------------------------------------------

    def _handle(self, request: bytes, caller: str = "", /) -> bytes:
        message = decode_for_task_manager(request)
        with self._lock:
            self._bytes["to workers"] += len(request)
            self._counts["requests to workers"] += 1
        if not isinstance(message, msg.Bundle):
            return encode(self._answer(message, len(request)))
        return encode(
            answer_each(message, lambda one: self._answer(decode_to_task_manager(one), len(memoryview(one))))
        )

    def _answer(self, message: msg.ToTaskManager, size: int) -> msg.Answer:
        with self._lock:
            self._bytes[f"to workers: {type(message).__name__}"] += size
            self._counts[type(message).__name__] += 1
            if isinstance(message, msg.DeployTask):
                self._deploy(message.deployment)
            elif isinstance(message, msg.ReleaseTaskManager):
                for worker in self._workers:
                    worker.released |= worker.id == message.task_manager
            elif not isinstance(message, msg.Ping | msg.ReleasePartitions):
                task = self._tasks.get(message.attempt)
                if task is None:
                    return msg.Refused(reason=f"no attempt {message.attempt} here")
                self._tell(task, message)
            return msg.Ack()

    def _deploy(self, deployment: TaskDeployment) -> None:
        if deployment.attempt in self._tasks or not self._workers:
            return  # sent twice, or the end has come
        worker = self._slots.get(deployment.allocation)
        if worker is None:  # tasks of one slot are on one worker
            worker = self._workers[len(self._slots) % len(self._workers)]
            self._slots[deployment.allocation] = worker
        source = deployment.vertex.source
        uids = tuple(operator.uid for operator in deployment.vertex.operators)
        pulls = source is not None and source.pull
        vertex, index = deployment.vertex, deployment.attempt.index
        first, last = key_group_range(vertex.max_parallelism, vertex.parallelism, index)
        task = Task(deployment.attempt, worker, uids, pulls, tuple(range(first, last + 1)))
        self._tasks[task.attempt] = worker.tasks[task.attempt] = task
        self._jobs.setdefault(task.attempt.job, {})[task.attempt] = task
        task.state = "RUNNING"
        self._states["RUNNING"] += 1
        states = ("INITIALIZING", "RUNNING")
        self._report(worker, *(msg.TaskStateChanged(attempt=task.attempt, state=state) for state in states))
        self._wants_split(task)

    def _wants_split(self, task: Task) -> None:
        if task.pulls:
            self._report(task.worker, msg.SplitRequested(attempt=task.attempt))

    def _tell(self, task: Task, message: msg.ToTaskManager) -> None:
        match message:
            case msg.AssignSplits(no_more=False):
                self._wants_split(task)
            case msg.TriggerCheckpoint():
                if self.barrier(message):
                    self.say({"barrier": base64.b64encode(encode(message)).decode()})
            case msg.CancelTask():
                self._end(task, "CANCELED")

    def _end(self, task: Task, state: str, failure: msg.TaskFailure | None = None) -> None:
        for known in (self._tasks, task.worker.tasks, self._jobs[task.attempt.job]):
            known.pop(task.attempt, None)
        self._states["RUNNING"] -= 1
        self._states[state] += 1
        changed = msg.TaskStateChanged(attempt=task.attempt, state=state, failure=failure)
        self._report(task.worker, changed)

    def say(self, line: dict[str, Any]) -> None:
        """Writes a line for the starter."""
        with self._output:
            print(json.dumps(line), flush=True)


def orders() -> Iterator[dict[str, Any]]:
    """What the starter wants, until its end."""
    for line in sys.stdin:
        yield json.loads(line)


def main(words: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, for all its processes
    with Swarm(words[0]) as swarm:
        for order in orders():
            match order["do"]:
                case "join":
                    swarm.join(order["master"], order["secret"], order["workers"], order["slots"])
                case "fail":
                    found = swarm.fail(order["job"], order["vertex"], order["index"], "as wanted")
                    swarm.say({"failed": found})
                case "barrier":
                    message = decode_to_task_manager(base64.b64decode(order["message"]))
                    assert isinstance(message, msg.TriggerCheckpoint)
                    swarm.barrier(message)
                case "figures":
                    swarm.say({"figures": swarm.figures()})
                case "forget":
                    swarm.forget_figures()


if __name__ == "__main__":
    main(sys.argv[1:])
