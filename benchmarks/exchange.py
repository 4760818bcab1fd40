"""How fast do batches cross from one process to another, with credits?

A producer process serves subpartitions; this process reads them as the channels of one gate (which share a
stream), granting the credit for each batch anew. Prints one JSON line for each case: rows of four int64
columns, by transport and batch size.

    python -m benchmarks.exchange                    one channel, which may have CREDIT
    python -m benchmarks.exchange --channels 16      16 of them, each with its share, or three batches
    python -m benchmarks.exchange --transport tls    as between hosts: both show certificates of one authority

`--serve` and `--connect` are its two processes, which `benchmarks.hosts` places on two hosts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
import unittest.mock
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from unistream.base.ids import AttemptId, EdgeId, JobId, TaskManagerId, VertexId
from unistream.base.limits import MIB
from unistream.model.codec import encode
from unistream.model.credentials import Credentials
from unistream.model.deployment import ChannelDescriptor
from unistream.model.elements import Batch, Element, EndOfPartition
from unistream.model.messages import Ack
from unistream.net import server as net_server
from unistream.net.client import FlightDataClient
from unistream.net.in_channel import InChannel
from unistream.net.server import FlightServer
from unistream.trust.authority import Authority, new_authority

CREDIT = 10 * MIB  # what one channel of a gate may have
ROWS = (16_384, 65_536)
TIMEOUT_S = 120
ROW_BYTES = 32
TRANSPORTS: Final = ("unix", "tcp", "tls")
DAY_MS: Final = 86_400_000


class Producer:
    """The same batch over and over: an ideal upstream task. The subpartition is the number of batches."""

    def __init__(self, rows: int) -> None:
        columns = {name: np.arange(rows, dtype=np.int64) for name in "abcd"}
        self.batch = Batch(pa.record_batch(columns))

    def takes(self, job: JobId, token: str) -> bool:
        return True

    def open_subpartition(self, channel: ChannelDescriptor, listener: Callable[[], None]) -> View:
        return View(self.batch, channel.subpartition)


class View:
    def __init__(self, batch: Batch, count: int) -> None:
        self.elements: Iterator[Element] = iter([batch] * count + [EndOfPartition()])
        self.head: Element | None = None

    def peek(self) -> Element | None:
        if self.head is None:
            self.head = next(self.elements, None)
        return self.head

    def poll(self) -> Element | None:
        element, self.head = self.peek(), None
        return element

    def poll_urgent(self) -> None:
        """Nothing overtakes here."""

    def release(self, error: BaseException | None) -> None:
        if error is not None:
            print(f"stream ended with {error}", file=sys.stderr)


class Consumer:
    """One channel of an ideal downstream task: takes rows as they come and grants at once."""

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.ended = 0.0
        self.error: BaseException | None = None
        self.done = threading.Event()
        self.ready = threading.Event()
        self.channel: InChannel | None = None
        self.begun = 0.0

    def on_element(self, element: Element, size: int) -> None:
        self.ready.wait()
        if isinstance(element, Batch):
            if not self.begun:  # the first batch carries the cost of connecting
                self.begun = time.perf_counter()
            else:
                self.rows += element.num_rows
                self.bytes += element.nbytes
            assert self.channel is not None
            self.channel.grant(size)
        else:
            self.ended = time.perf_counter()
            self.done.set()

    def on_need(self, size: int) -> None:
        """Everything is granted at once."""

    def on_error(self, error: BaseException) -> None:
        self.error = error
        self.done.set()


class Producing(msgspec.Struct, frozen=True):
    """A producer that listens. `credentials`: what its consumer shows; null: nothing."""

    address: str
    credentials: Credentials | None


def serve(transport: str, rows: int, host: str) -> None:
    """The producer's process: prints how it is reached, and lives until its stdin ends."""
    mine, consumers = certificates() if transport == "tls" else (None, None)
    if mine is None:  # no cluster speaks plain text between hosts: this is what TLS is compared with
        unittest.mock.patch.object(net_server, "is_loopback", return_value=True).start()
    server = FlightServer(
        host,
        control=lambda _, _caller="": encode(Ack()),
        partitions=Producer(rows),
        unix=transport == "unix",
        credentials=mine,
    )
    print(msgspec.json.encode(Producing(server.address, consumers)).decode(), flush=True)
    sys.stdin.read()
    server.close()


def certificates() -> tuple[Credentials, Credentials]:
    """The producer's and the consumer's, of an authority that is made for them."""
    now_ms = time.time_ns() // 1_000_000
    authority = Authority(new_authority("benchmark", now_ms))
    producer, consumer = (authority.issue(name, now_ms=now_ms, lasts_ms=DAY_MS) for name in ("tm-p", "tm-c"))
    return producer, consumer


def connect(producing: Producing, rows: int, bytes_total: int, channels: int) -> dict[str, object]:
    """The consumer's process: what it has measured."""
    client, consumers = (
        FlightDataClient(credentials=producing.credentials),
        [Consumer() for _ in range(channels)],
    )
    cpu_begun_s = cpu_s()
    try:
        channel = ChannelDescriptor(
            producer=AttemptId(JobId("bench"), VertexId("v"), 0, 1),
            edge=EdgeId("e"),
            subpartition=max(2, bytes_total // channels // (ROW_BYTES * rows)),
            task_manager=TaskManagerId("tm"),
            address=producing.address,
        )
        gate = client.gate()
        for consumer in consumers:
            consumer.channel = gate.connect(channel, consumer, max(CREDIT // channels, 3 * ROW_BYTES * rows))
        for consumer in consumers:
            consumer.ready.set()
        for consumer in consumers:
            if not consumer.done.wait(TIMEOUT_S) or consumer.error is not None:
                raise SystemExit(f"exchange failed: {consumer.error or 'timeout'}")
    finally:
        client.close()
    seconds = max(c.ended for c in consumers) - min(c.begun for c in consumers)
    received_bytes, received_rows = sum(c.bytes for c in consumers), sum(c.rows for c in consumers)
    return {
        "batch_rows": rows,
        "columns": "4 x int64",
        "channels": channels,
        "rows": received_rows,
        "credit_mb": CREDIT // MIB,
        "gb_per_s": round(received_bytes / seconds / 1e9, 2),
        "rows_per_s": round(received_rows / seconds),
        "consumer_cpu_s_per_gb": round((cpu_s() - cpu_begun_s) / received_bytes * 1e9, 2),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "load_average": round(os.getloadavg()[0], 1),
    }


def measure(transport: str, rows: int, bytes_total: int, channels: int) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks.exchange", "--serve", transport, "--rows", str(rows)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    cpu_begun_s = cpu_s()
    try:
        producing = msgspec.json.decode(process.stdout.readline(), type=Producing)
        found = connect(producing, rows, bytes_total, channels)
    finally:
        process.stdin.close()
        process.wait(TIMEOUT_S)
    gigabytes = found["rows"] * ROW_BYTES / 1e9  # type: ignore[operator]  # an int
    return {
        "benchmark": "exchange",
        "engine": "unistream",
        "transport": transport,
        **found,
        "cpu_s_per_gb": round((cpu_s() - cpu_begun_s) / gigabytes, 2),
    }


def cpu_s() -> float:
    """Of this process and its ended children: says more than GB/s where others share the cores."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=3.0, help="how much to send in each case")
    parser.add_argument("--transport", choices=TRANSPORTS, help="only this one")
    parser.add_argument("--rows", type=int, help="rows of a batch; both usual sizes if not given")
    parser.add_argument("--channels", type=int, default=1, help="channels that share the stream")
    parser.add_argument("--serve", choices=TRANSPORTS, help=argparse.SUPPRESS)
    parser.add_argument("--host", default="127.0.0.1", help=argparse.SUPPRESS)
    parser.add_argument("--connect", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    size = int(arguments.gb * 1e9)
    if arguments.serve:
        serve(arguments.serve, arguments.rows, arguments.host)
    elif arguments.connect:
        producing = msgspec.json.decode(arguments.connect, type=Producing)
        print(json.dumps(connect(producing, arguments.rows, size, arguments.channels)))
    else:
        for transport in (arguments.transport,) if arguments.transport else TRANSPORTS:
            for rows in (arguments.rows,) if arguments.rows else ROWS:
                result = measure(transport, rows, size, arguments.channels)
                print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
