"""What does the event stream of the web UI cost, in bytes and in processor time of the master?

    python -m benchmarks.events                    both parts
    python -m benchmarks.events jobs --running 20 --ended 100 --clients 0,1,10
    python -m benchmarks.events subtasks --subtasks 10000

`jobs`: a cluster with many jobs in a process of its own, and clients that follow its overview. `subtasks`: a
job of so many subtasks, all of which have counted something since the last look: a look with its change, and
the whole picture. One JSON line for each part.
"""

from __future__ import annotations

import argparse
import http.client
import json
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from benchmarks.service import WAIT_S, await_job, cluster, endless, request, runs
from tests.asking import as_owner
from unistream.base.ids import JobId, LineageId, VertexId
from unistream.client.remote.rest_client import RestClient
from unistream.model.job_info import JobInfo, SubtaskInfo
from unistream.model.messages import TaskMetrics
from unistream.rest.event_log import TopicLog, compared, interval_s

if TYPE_CHECKING:
    from collections.abc import Iterator

VERTICES = 10
ROUNDS = 5


def jobs(options: argparse.Namespace) -> dict[str, Any]:
    """For each number of clients: bytes in a second of one, and the share of a core that the master takes."""
    slots = {"taskmanager.numberOfTaskSlots": str(options.running + 4)}
    found = {}
    with (
        tempfile.TemporaryDirectory(prefix="unistream-events-") as folder,
        cluster(Path(folder), "local", **slots) as service,
        RestClient(service.url) as client,
    ):
        for number in range(options.running):
            await_job(client.submit(endless(f"running {number}")), runs)
        ended = [client.submit(request(f"ended {number}", rows=1)) for number in range(options.ended)]
        for job in ended:
            await_job(job, lambda info: info.is_terminal)
        for clients in map(int, options.clients.split(",")):
            with following(service.url, clients) as received:
                time.sleep(3)  # the whole pictures are over
                before, bytes_before, began = service.cpu_s, sum(received), time.perf_counter()
                time.sleep(options.seconds)
                elapsed = time.perf_counter() - began
                core = (service.cpu_s - before) / elapsed
                rate = (sum(received) - bytes_before) / max(1, clients) / elapsed
            found[str(clients)] = {"core_share": round(core, 3), "bytes_per_s": round(rate)}
    return {"running": options.running, "ended": options.ended, "clients": found}


@contextmanager
def following(url: str, clients: int) -> Iterator[list[int]]:
    """Bytes that each has received so far."""
    received = [0] * clients
    stop = threading.Event()

    def follow(own: int, answer: http.client.HTTPResponse) -> None:
        while not stop.is_set():
            received[own] += len(answer.readline())

    with ExitStack() as stack:
        threads = []
        for own in range(clients):
            connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=WAIT_S)
            stack.callback(connection.close)
            connection.request("GET", "/unistream/events", headers=as_owner(url))
            threads.append(threading.Thread(target=follow, args=(own, connection.getresponse()), daemon=True))
            threads[-1].start()
        yield received
        stop.set()
        for thread in threads:
            thread.join(WAIT_S)


def subtasks(options: argparse.Namespace) -> dict[str, Any]:
    """The smallest ms of some rounds, and bytes."""
    before, after = (counted(options.subtasks, rows) for rows in (1_000, 2_000))
    one = replace(before, subtasks=(after.subtasks[0], *before.subtasks[1:]))
    looked_s, log = [], TopicLog("job")
    log.add(compared(None, before), 1, 0)
    for version in range(2, 2 + ROUNDS):
        began = time.thread_time()
        look = compared(log.picture, after if version % 2 == 0 else before)
        sent_bytes = log.add(look, version, 0)
        looked_s.append(time.thread_time() - began)
    began = time.thread_time()
    [whole] = log.since(None)
    whole_s = time.thread_time() - began
    single = compared(before, one).change
    return {
        "subtasks": options.subtasks,
        "whole_bytes": len(whole),
        "whole_ms": round(whole_s * 1000, 1),
        "all_changed_bytes": sent_bytes,
        "all_changed_ms": round(min(looked_s) * 1000, 1),
        "sent_each_s": round(interval_s(min(looked_s), sent_bytes), 1),
        "one_changed_bytes": len(msgspec.json.encode(single)),
    }


def counted(number: int, rows: int) -> JobInfo:
    def subtask(index: int) -> SubtaskInfo:
        metrics = TaskMetrics(
            records_in=rows + index, records_out=rows, busy_ms=rows, busy_per_s=rows % 1_000
        )
        return SubtaskInfo(
            vertex=VertexId(f"{index % VERTICES:032x}"),
            vertex_name=f"vertex {index % VERTICES}",
            index=index // VERTICES,
            attempt=0,
            state="RUNNING",
            metrics=metrics,
        )

    return JobInfo(
        job=JobId("a" * 32),
        name="wide",
        lineage=LineageId("l"),
        state="RUNNING",
        target="local",
        submitted_ms=0,
        subtasks=tuple(map(subtask, range(number))),
    )


PARTS = {"jobs": jobs, "subtasks": subtasks}


def main() -> None:
    """Prints one line for each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--running", type=int, default=20)
    parser.add_argument("--ended", type=int, default=100)
    parser.add_argument("--clients", default="0,1,10")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--subtasks", type=int, default=10_000)
    options = parser.parse_args()
    for name in options.parts or PARTS:
        print(json.dumps({"benchmark": "events", "part": name, **PARTS[name](options)}), flush=True)


if __name__ == "__main__":
    main()
