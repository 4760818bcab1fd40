"""How fast is the service around the jobs: submission, recovery, heartbeats, REST pages?

    python -m benchmarks.service                             all parts
    python -m benchmarks.service submit --target spark
    python -m benchmarks.service recover --jobs 50
    python -m benchmarks.service heartbeats --workers 200
    python -m benchmarks.service overview --rate 50
    python -m benchmarks.service overview --tls              the same over TLS, with the owner's token

The cluster is a process of its own (`unistream cluster start`). One JSON line for each part. `overview` sends
requests at fixed times, whatever the answers take, and counts the wait for a late start; client and cluster
share the machine. Pages of a job with a long history: `python -m benchmarks.history`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any, Final
from urllib.parse import urlsplit

import psutil

import unistream as us
from tests.asking import as_owner
from unistream.base.ids import TaskManagerId
from unistream.client.machine.home import HOME_VARIABLE
from unistream.client.machine.trusted import Trusted
from unistream.client.remote.rest_client import RestClient, RestJobClient
from unistream.model.job_info import JobInfo
from unistream.model.messages import Ack, Heartbeat, Registered, RegisterTaskManager
from unistream.model.submission import SubmitRequest
from unistream.net.client import FlightControlClient
from unistream.net.server import FlightServer
from unistream.worker.code import pack

WAIT_S: Final = 180.0
POLL_S: Final = 0.005
BY_TLS: Final = {"security.ssl.rest.enabled": "true", "security.rest.authentication": "token"}
SESSION: Final = {"execution.runtime-mode": "STREAMING", "execution.checkpointing.interval": "10 s"}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running one. `jobmanager`: where workers register."""

    process: subprocess.Popen[str]
    url: str
    jobmanager: str | None

    @property
    def cpu_s(self) -> float:
        """Processor time of the master so far."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def kill(self) -> None:
        """With all its workers, at once."""
        family = [*psutil.Process(self.process.pid).children(recursive=True), self.process]
        for one in family:
            one.kill()
        self.process.wait(WAIT_S)


@contextmanager
def cluster(folder: Path, target: str, **config: str) -> Iterator[Cluster]:
    """Runs until the end of the context, unless it was killed. Its home is below `folder`."""
    options = [text for key, value in config.items() for text in ("-D", f"{key}={value}")]
    command = [sys.executable, "-m", "unistream.cli", "cluster", "start", "-t", target, "--json", *options]
    environment = {**os.environ, HOME_VARIABLE: str(folder / "home")}
    process = subprocess.Popen(
        [*command, "--workdir", str(folder / "work")],
        stdout=subprocess.PIPE,
        stderr=(folder / "stderr").open("a"),
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit((folder / "stderr").read_text()[-4000:])
        facts = json.loads(line)
        yield Cluster(process, facts["url"], facts["jobmanager"])
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(WAIT_S)


def endless(name: str) -> SubmitRequest:
    """A source and a sink, in one task."""
    return request(name, rows=None)


def request(name: str, rows: int | None) -> SubmitRequest:
    env = us.Environment(SESSION)
    columns = {"n": us.datagen.Sequential()}
    source = us.DatagenSource(columns, rows=rows, bounded=rows is not None, rows_per_second=10)
    numbers = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers.sink_to(us.BlackholeSink()).uid("out")
    graph, code = env.job_graph(name)
    return SubmitRequest(graph=graph, artifact=pack(code), config=SESSION)


def await_job(job: RestJobClient, condition: Callable[[JobInfo], bool]) -> JobInfo:
    deadline = time.monotonic() + WAIT_S
    while not condition(info := job.status()):
        if time.monotonic() > deadline:
            raise SystemExit(f"job {info.job} is {info.state} after {WAIT_S} s: {info.failure}")
        time.sleep(POLL_S)
    return info


def runs(info: JobInfo) -> bool:
    return info.state == "RUNNING" and all(subtask.state == "RUNNING" for subtask in info.subtasks)


# --- the parts ------------------------------------------------------------------------------------


def submit(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Seconds until a job is accepted, and until its task runs: on workers that are there."""
    config = {"taskmanager.numberOfTaskSlots": "2"}
    with cluster(folder, options.target, **config) as service, RestClient(service.url) as client:
        accepted, running = [], []
        for number in range(options.runs + 1):
            wanted = endless(f"job {number}")
            began = time.perf_counter()
            job = client.submit(wanted)
            accepted.append(round(time.perf_counter() - began, 3))
            await_job(job, runs)
            running.append(round(time.perf_counter() - began, 3))
            job.cancel()
            await_job(job, lambda info: info.is_terminal)
    return {
        "target": options.target,
        "first_running_s": running[0],  # its worker starts
        "accepted_s": max(accepted[1:]),
        "running_s": max(running[1:]),
        "runs": options.runs,
    }


def recover(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """A cluster with many jobs is killed: seconds from its start until all run again."""
    slots = {"taskmanager.numberOfTaskSlots": str(options.jobs)}
    with cluster(folder, "local", **slots) as service, RestClient(service.url) as client:
        jobs = [client.submit(endless(f"job {number}")).job_id for number in range(options.jobs)]
        for job in jobs:
            await_job(client.client(job), lambda info: runs(info) and info.checkpoints_completed > 0)
        service.kill()
    began = time.perf_counter()
    with cluster(folder, "local", **slots) as service, RestClient(service.url) as client:
        reached_s = time.perf_counter() - began
        for job in jobs:
            await_job(client.client(job), runs)
        running_s = time.perf_counter() - began
    return {"jobs": options.jobs, "reached_s": round(reached_s, 2), "all_running_s": round(running_s, 2)}


def heartbeats(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Processor time of a master with many workers, each of which sends and answers a heartbeat a second."""
    config = {"heartbeat.interval": "1 s", "heartbeat.timeout": "30 s", "jobmanager.rpc.port": "0"}
    with ExitStack() as stack:
        service = stack.enter_context(cluster(folder, "standalone", **config))
        assert service.jobmanager is not None
        workers = [TaskManagerId(f"tm-{number:04d}") for number in range(options.workers)]
        stack.enter_context(beating(workers, f"grpc+tcp://{service.jobmanager}"))
        time.sleep(options.seconds / 4)  # registrations are over
        before, began = service.cpu_s, time.perf_counter()
        time.sleep(options.seconds)
        used, elapsed = service.cpu_s - before, time.perf_counter() - began
        with RestClient(service.url) as client:
            known = len(client.task_managers())
    return {"workers": known, "interval_s": 1, "core_share": round(used / elapsed, 3)}


@contextmanager
def beating(workers: list[TaskManagerId], master: str, clients: int = 8) -> Iterator[None]:
    """Workers without slots in use, which share a server and some connections; each beats once a second."""
    server = FlightServer("127.0.0.1", control=_answer, partitions=None)
    stop = threading.Event()

    def beat(own: list[TaskManagerId]) -> None:
        client = FlightControlClient(master)
        for worker in own:
            answer = client.call(
                RegisterTaskManager(task_manager=worker, address=server.address, slots=1, pid=1, host="h")
            )
            assert isinstance(answer, Registered), answer
        while not stop.is_set():
            began = time.monotonic()
            for worker in own:
                client.call(Heartbeat(task_manager=worker))
                stop.wait(1 / len(own) / 2)  # spread over half of the second
            stop.wait(max(0.0, 1 - (time.monotonic() - began)))
        client.close()

    threads = [
        threading.Thread(target=beat, args=(workers[n::clients],), daemon=True) for n in range(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT_S)
        server.close()


def _answer(_message: bytes, _caller: str = "", /) -> bytes:
    from unistream.model.codec import encode

    return encode(Ack())


def overview(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Latency of the overview of jobs, some of which run and many of which have ended, and the processor time
    of the master for each request."""
    config = {"taskmanager.numberOfTaskSlots": str(options.running + 4), **(BY_TLS if options.tls else {})}
    os.environ[HOME_VARIABLE] = str(folder / "home")  # where the token and the authority are found
    with cluster(folder, "local", **config) as service, RestClient(service.url) as client:
        for number in range(options.running):
            await_job(client.submit(endless(f"running {number}")), runs)
        ended = [client.submit(request(f"ended {number}", rows=1)) for number in range(options.ended)]
        for job in ended:
            await_job(job, lambda info: info.is_terminal)
        pages = {
            "overview": "/v1/jobs/overview",
            "jobs": "/v1/unistream/jobs",
            "figures": "/v1/unistream/overview",
        }
        times = {}
        for name, path in pages.items():
            before = service.cpu_s
            times[name] = latencies(service.url, path, options)
            times[name]["cpu_ms"] = round(
                1000 * (service.cpu_s - before) / (options.rate * options.seconds), 1
            )
    facts = {"tls": options.tls, "running": options.running, "ended": options.ended, "rate": options.rate}
    return {**facts, "load_average": round(os.getloadavg()[0], 1), **times}


def latencies(url: str, path: str, options: argparse.Namespace) -> dict[str, float]:
    """ms of requests at a fixed rate, each counted from the moment when it was due."""
    due = [number / options.rate for number in range(int(options.rate * options.seconds))]
    began = time.perf_counter() + 0.2
    connections, headers, trusted = threading.local(), as_owner(url), Trusted()

    def ask(at_s: float) -> float:
        time.sleep(max(0.0, began + at_s - time.perf_counter()))
        connection = getattr(connections, "one", None)
        if connection is None:
            connection = connections.one = connection_to(url, trusted)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path}: status {answer.status}")
        return 1000 * (time.perf_counter() - began - at_s)

    with ThreadPoolExecutor(8) as pool:
        found = sorted(pool.map(ask, due))
    cuts = quantiles(found, n=100)
    return {"p50_ms": round(cuts[49], 1), "p99_ms": round(cuts[98], 1), "max_ms": round(found[-1], 1)}


def connection_to(url: str, trusted: Trusted) -> http.client.HTTPConnection:
    """One that believes what a client of this home believes."""
    at = urlsplit(url)
    assert at.hostname is not None
    assert at.port is not None
    if at.scheme == "http":
        return http.client.HTTPConnection(at.hostname, at.port, timeout=WAIT_S)
    context = trusted.context(at.hostname, at.port, WAIT_S)
    return http.client.HTTPSConnection(at.hostname, at.port, timeout=WAIT_S, context=context)


PARTS: Final = {
    "submit": submit,
    "recover": recover,
    "heartbeats": heartbeats,
    "overview": overview,
}


def main() -> None:
    """Prints one line for each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--target", default="local", help="of submit: local or spark")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--running", type=int, default=20)
    parser.add_argument("--ended", type=int, default=100)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--tls", action="store_true", help="overview over TLS, with a token")
    options = parser.parse_args()
    for name in options.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix="unistream-service-") as folder:
            line = PARTS[name](options, Path(folder))
        print(json.dumps({"benchmark": "service", "part": name, **line}), flush=True)


if __name__ == "__main__":
    main()
