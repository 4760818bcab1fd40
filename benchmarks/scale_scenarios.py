"""The scenarios of `benchmarks.scale`: each starts its cluster, measures its steps and ends all of it."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import unistream as us
from benchmarks.scale_cluster import POLL_S, Master, Masters, Swarm, await_that
from benchmarks.scale_measure import Measured, Row, Screen, Wanted
from unistream.client.remote.rest_client import RestClient, RestJobClient
from unistream.model.submission import SubmitRequest
from unistream.testing.devtools.servers import ZOOKEEPER, zookeeper_says
from unistream.testing.devtools.stack import LocalStack
from unistream.worker.code import pack

MIB: Final = 2**20
SUBMITTERS: Final = 4
HEARTBEATS_MIN: Final = 3  # of each worker, for a share of a core
SESSION_S: Final = 10  # how long a leader that was killed still counts, with ZooKeeper
CHAIN: Final = 20  # vertices of the job with many subtasks: as many of its tasks share a slot
REGION: Final = ("source", 0)  # whose failure restarts one region


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large everything is, and how long things may take."""

    workers: int
    subtasks: int
    width: int
    jobs: int
    processes: int
    interval_s: float
    checkpoint_s: float
    steady_s: float
    timeout_s: float
    ha: str
    metadata: str | None


@dataclass(slots=True)
class Cluster:
    """A running one."""

    masters: Masters
    master: Master
    swarm: Swarm
    sizes: Sizes
    screen: Screen
    zookeeper: Callable[[], int]

    def await_count(self, what: str, total: int, done: Callable[[], int], *, poll_s: float = POLL_S) -> float:
        """Seconds until `done` has reached `total`."""
        reached = self.screen.step(what, total, done)
        return await_that(reached, what, self.sizes.timeout_s, self._said, poll_s=poll_s)

    def _said(self) -> str:
        seen = self.swarm.figures()
        return f"simulated workers: {dict(seen.states)}, {dict(seen.counts)}\nthe master:\n{self.master.said}"

    def measured(self) -> Measured:
        return Measured(self.master, self.swarm, self.zookeeper)

    def await_running(self, tasks: int) -> float:
        return self.await_count("tasks run", tasks, lambda: self.swarm.figures().states["RUNNING"])

    def client(self) -> RestClient:
        return self.master.client(self.sizes.timeout_s)

    def registers(self, workers: int, slots: int) -> float:
        self.swarm.join(self.master.entry, workers, slots)
        return self.await_count(
            "workers register", workers, lambda: self.swarm.figures().counts["registered"]
        )

    def steady(self, scenario: str, step: str, units: int, unit: str, wanted: tuple[Wanted, ...] = ()) -> Row:
        """Nothing is asked of it for a while."""
        wait_s = max(self.sizes.steady_s, HEARTBEATS_MIN * self.sizes.interval_s)
        measured, began_s = self.measured(), time.monotonic()
        over = self.screen.step(step, math.ceil(wait_s), lambda: int(time.monotonic() - began_s))
        seconds = await_that(over, step, 2 * wait_s + self.sizes.timeout_s)
        seen = self.swarm.figures()
        beats = seen.latencies_ms or [0.0]
        return measured.row(
            scenario,
            step,
            (units, unit),
            seconds,
            wanted,
            heartbeats=seen.counts["beats"],
            probes=seen.counts["Ping"],
            checkpoints_notified=seen.counts["CheckpointCompleted"],
            answered_p50_ms=beats[len(beats) // 2],
            answered_max_ms=beats[-1],
        )


@contextmanager
def cluster(sizes: Sizes, folder: Path, screen: Screen, **options: str) -> Iterator[Cluster]:
    """A master that leads, and processes for workers. With `--ha zookeeper` the jobs are there."""
    given = {
        "jobmanager.rpc.port": "0",
        "rest.port": "0",
        "security.rest.authentication": "token",  # workers present a secret with each call
        "heartbeat.interval": f"{sizes.interval_s * 1000:.0f} ms",
        "heartbeat.timeout": f"{sizes.timeout_s * 1000:.0f} ms",  # who is slow here is not lost
        "slot.request.timeout": f"{sizes.timeout_s * 1000:.0f} ms",
        **({"metadata.url": sizes.metadata} if sizes.metadata else {}),
        **options,
    }
    with ExitStack() as stack:
        zookeeper: Callable[[], int] = lambda: 0  # noqa: E731  what is counted where there is none
        if sizes.ha == "zookeeper":
            server = stack.enter_context(LocalStack(folder / "stack", (ZOOKEEPER,)))
            address = server.address(ZOOKEEPER)
            given |= _elected(folder, address)
            zookeeper = _Transactions(address)
        masters = Masters(folder, given)
        master = stack.enter_context(masters.start("first", "work-first"))
        swarm = stack.enter_context(Swarm(sizes.processes))
        here = Cluster(masters, master, swarm, sizes, screen, zookeeper)
        here.await_count("the master starts", 1, lambda: int(master.leads()))
        yield here


def _elected(folder: Path, quorum: str) -> Mapping[str, str]:
    return {
        "high-availability.type": "zookeeper",
        "high-availability.zookeeper.quorum": quorum,
        "high-availability.storageDir": (folder / "ha").as_uri(),
        "high-availability.cluster-id": "scale",
        "high-availability.zookeeper.client.session-timeout": f"{SESSION_S} s",
    }


class _Transactions:
    """How many ZooKeeper has written: it numbers them."""

    def __init__(self, address: str) -> None:
        self._port = urlsplit(f"//{address}").port or 0

    def __call__(self) -> int:
        found = re.search(rb"Zxid: 0x([0-9a-f]+)", zookeeper_says(self._port, b"srvr"))
        return 0 if found is None else int(found[1], 16) & 0xFFFFFFFF


# --- jobs ---------------------------------------------------------------------------------------------


def request(name: str, vertices: int, parallelism: int, *, exchange: bool, **config: str) -> SubmitRequest:
    """A stream of so many vertices, each of one operator; `exchange`: all of the last one's subtasks read all
    of those before."""
    options = {
        "execution.runtime-mode": "STREAMING",
        "parallelism.default": str(parallelism),
        "pipeline.operator-chaining.enabled": "false",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "0 s",
        **config,
    }
    env = us.Environment(options)
    columns = {"n": us.datagen.Sequential()}
    source = us.DatagenSource(columns, rows=None, bounded=False, splits=parallelism)
    stream = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "source").uid("source")
    for number in range(vertices - 2):
        stream = stream.filter(us.col("n") >= 0).uid(f"step-{number}").name(f"step {number}")
    if exchange:
        stream = stream.rebalance()
    stream.sink_to(us.BlackholeSink()).uid("out")
    graph, code = env.job_graph(name)
    return SubmitRequest(graph=graph, artifact=pack(code), config=options)


def vertex_of(wanted: SubmitRequest, place: int) -> str:
    return str(wanted.graph.vertices[place].id)


# --- the scenarios ------------------------------------------------------------------------------------


def heartbeats(sizes: Sizes, folder: Path, screen: Screen) -> Iterator[Row]:
    """Workers register, and then each sends and answers heartbeats."""
    wanted = (Wanted(figure="core_share", below=1.0), Wanted(figure="peak_mb", below=2048))
    with cluster(sizes, folder, screen) as here:
        measured = here.measured()
        seconds = here.registers(sizes.workers, 1)
        yield measured.row("heartbeats", "workers register", (sizes.workers, "workers"), seconds)
        yield here.steady("heartbeats", "each beats", sizes.workers, "workers", wanted)


def subtasks(sizes: Sizes, folder: Path, screen: Screen) -> Iterator[Row]:
    """One wide job: it is deployed, takes a checkpoint, loses one region, is cancelled."""
    width = max(1, sizes.subtasks // CHAIN)
    tasks = width * CHAIN
    wanted = request("many subtasks", CHAIN, width, exchange=False)
    with cluster(sizes, folder, screen) as here, here.client() as client:
        here.registers(sizes.workers, math.ceil(width / sizes.workers))
        measured, began_s = here.measured(), time.monotonic()
        job = client.submit(wanted)
        accepted_s = time.monotonic() - began_s
        here.await_running(tasks)
        await_state(here, job, "RUNNING")
        below = (Wanted(figure="seconds", below=30),)
        seconds = time.monotonic() - began_s
        yield measured.row("subtasks", "deployed", (tasks, "subtasks"), seconds, below, accepted_s=accepted_s)
        yield here.steady("subtasks", "heartbeats with their figures", tasks, "subtasks")
        yield _checkpoint(here, job, tasks)
        measured, began_s = here.measured(), time.monotonic()
        here.swarm.fail(job.job_id, vertex_of(wanted, 0), REGION[1])
        here.await_count("the region runs again", CHAIN, lambda: here.swarm.figures().counts["DeployTask"])
        here.await_running(tasks)
        await_state(here, job, "RUNNING")
        yield measured.row("subtasks", "one region fails", (CHAIN, "subtasks"), time.monotonic() - began_s)
        yield _cancelled(here, job, "subtasks", tasks)


def _checkpoint(here: Cluster, job: RestJobClient, tasks: int) -> Row:
    measured, began_s = here.measured(), time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(job.checkpoint)
        here.await_count(
            "the checkpoint is complete",
            tasks,
            lambda: here.swarm.figures().counts["CheckpointCompleted"],
        )
        seconds = time.monotonic() - began_s
        place = taken.result(here.sizes.timeout_s)
    complete_s = _complete_s(here, job)
    metadata = Path(urlsplit(place).path) / "_metadata"
    return measured.row(
        "subtasks",
        "a checkpoint",
        (tasks, "subtasks"),
        seconds,
        (Wanted(figure="beyond_states_s", below=5),),
        complete_s=complete_s,
        beyond_states_s=complete_s - here.swarm.figures().states_s,
        metadata_mb=metadata.stat().st_size / MIB,
    )


def _complete_s(here: Cluster, job: RestJobClient) -> float:
    """From the trigger of the newest checkpoint until its metadata were durable. A busy master answers with
    an older picture of the job."""
    found: list[int] = []

    def shown() -> int:
        newest = job.checkpoints().latest_completed
        if newest is not None:
            found.append(newest.duration_ms)
        return len(found)

    here.await_count("the checkpoint is shown", 1, shown, poll_s=0.5)
    return found[-1] / 1000


def _cancelled(here: Cluster, job: RestJobClient, scenario: str, tasks: int) -> Row:
    measured, began_s = here.measured(), time.monotonic()
    job.cancel()
    here.await_count("tasks end", tasks, lambda: here.swarm.figures().states["CANCELED"])
    await_state(here, job, "CANCELED")
    return measured.row(scenario, "cancelled", (tasks, "subtasks"), time.monotonic() - began_s)


def await_state(here: Cluster, job: RestJobClient, state: str) -> None:
    """Asks seldom: for the answer the master looks at all tasks."""
    with here.client() as client:

        def reached() -> int:
            return sum(one.job == job.job_id and one.state == state for one in client.jobs())

        here.await_count(f"the job is {state}", 1, reached, poll_s=0.5)


def exchange(sizes: Sizes, folder: Path, screen: Screen) -> Iterator[Row]:
    """Every subtask of a vertex reads every one of the vertex before."""
    tasks, channels = 2 * sizes.width, sizes.width**2
    wanted = request("all to all", 2, sizes.width, exchange=True)
    with cluster(sizes, folder, screen) as here, here.client() as client:
        here.registers(sizes.workers, math.ceil(sizes.width / sizes.workers))
        measured, began_s = here.measured(), time.monotonic()
        job = client.submit(wanted)
        here.await_running(tasks)
        await_state(here, job, "RUNNING")
        yield measured.row("exchange", "deployed", (channels, "channels"), time.monotonic() - began_s)
        measured, began_s = here.measured(), time.monotonic()
        here.swarm.fail(job.job_id, vertex_of(wanted, 0), REGION[1])
        here.await_count("all run again", tasks, lambda: here.swarm.figures().counts["DeployTask"])
        here.await_running(tasks)
        await_state(here, job, "RUNNING")
        yield measured.row("exchange", "all restart", (channels, "channels"), time.monotonic() - began_s)
        yield _cancelled(here, job, "exchange", tasks)


JOB_TASKS: Final = 4


def jobs(sizes: Sizes, folder: Path, screen: Screen) -> Iterator[Row]:
    """Many small jobs in one session cluster; then its leader is killed."""
    tasks = sizes.jobs * JOB_TASKS
    interval = {"execution.checkpointing.interval": f"{sizes.checkpoint_s * 1000:.0f} ms"}
    slots = math.ceil(sizes.jobs * 2 / sizes.workers)
    with cluster(sizes, folder, screen) as here:
        here.registers(sizes.workers, slots)
        measured, began_s = here.measured(), time.monotonic()
        with here.client() as client, ThreadPoolExecutor(SUBMITTERS) as pool:
            numbers = range(sizes.jobs)
            submitted = [
                pool.submit(client.submit, request(f"job {n}", 2, 2, exchange=True, **interval))
                for n in numbers
            ]
            here.await_count("jobs are submitted", sizes.jobs, lambda: sum(map(_is_done, submitted)))
            for one in submitted:
                one.result(0)
        accepted_s = time.monotonic() - began_s
        here.await_running(tasks)
        seconds = time.monotonic() - began_s
        yield measured.row("jobs", "submitted", (sizes.jobs, "jobs"), seconds, accepted_s=accepted_s)
        yield here.steady("jobs", f"a checkpoint every {sizes.checkpoint_s:g} s", sizes.jobs, "jobs")
        yield from _takeover(here, tasks, slots)


def _is_done(future: object) -> bool:
    done: Callable[[], bool] = getattr(future, "done")  # noqa: B009  a future of any kind
    return done()


def _takeover(here: Cluster, tasks: int, slots: int) -> Iterator[Row]:
    """The next master: a standby, or the same one started again on its folder."""
    stands_by = here.sizes.ha == "zookeeper"
    with ExitStack() as stack:
        if stands_by:
            standby = stack.enter_context(here.masters.start("second", "work-second"))
        began_s = time.monotonic()
        here.master.kill()
        if not stands_by:
            standby = stack.enter_context(here.masters.start("second", "work-first"))
        here.master = standby
        measured = here.measured()
        here.await_count("the next master leads", 1, lambda: int(standby.leads()))
        leads_s = time.monotonic() - began_s
        here.swarm.join(standby.entry, here.sizes.workers, slots)
        here.await_running(tasks)
        seconds = time.monotonic() - began_s
        below = (Wanted(figure="seconds", below=60),)
        yield measured.row("jobs", "takeover", (here.sizes.jobs, "jobs"), seconds, below, leads_s=leads_s)


SCENARIOS: Final[Mapping[str, Callable[[Sizes, Path, Screen], Iterator[Row]]]] = {
    "heartbeats": heartbeats,
    "subtasks": subtasks,
    "exchange": exchange,
    "jobs": jobs,
}
"""Name -> what measures it, row by row."""
