"""Messages that travel together, over real Flight: to a worker, and from a worker to its master."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.eventually import WAIT_S
from unistream.base.clock import SystemClock
from unistream.base.ids import AttemptId, JobId, TaskManagerId, VertexId
from unistream.base.limits import BUNDLE_MESSAGES_MAX, FRAME_BYTES_MAX
from unistream.master.service.senders import OutgoingMessage, Senders, SendFailure
from unistream.model import messages as msg
from unistream.model.bundle import answer_each
from unistream.model.codec import (
    decode_for_job_manager,
    decode_for_task_manager,
    decode_task_report,
    decode_to_task_manager,
    encode,
)
from unistream.net.client import FlightControlClient
from unistream.net.server import FlightServer
from unistream.worker.process.reports import ReportSender

WORKER = TaskManagerId("tm")


def attempt(number: int) -> AttemptId:
    return AttemptId(JobId("j"), VertexId("v"), number, 0)


class Peer:
    """Either side: acts on every message, save those of `refused` subtasks and those that it breaks on."""

    def __init__(self) -> None:
        self.requests: list[int] = []
        self.acted: list[int] = []
        self.refused: set[int] = set()
        self.breaks: set[int] = set()
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def as_worker(self, request: bytes, caller: str = "", /) -> bytes:
        message = decode_for_task_manager(request)
        if isinstance(message, msg.Bundle):
            self._begin(len(message.messages))
            return encode(answer_each(message, lambda one: self._act(decode_to_task_manager(one))))
        self._begin(1)
        return encode(self._act(message))

    def as_master(self, request: bytes, caller: str = "", /) -> bytes:
        message = decode_for_job_manager(request)
        if isinstance(message, msg.Bundle):
            self._begin(len(message.messages))
            return encode(answer_each(message, lambda one: self._act(decode_task_report(one))))
        self._begin(1)
        return encode(self._act(message))

    def _begin(self, count: int) -> None:
        self.requests.append(count)
        self.entered.set()
        assert self.gate.wait(WAIT_S)

    def _act(self, message: msg.ToTaskManager | msg.ToJobManager) -> msg.Answer:
        number = message.attempt.index  # type: ignore[union-attr]
        if number in self.breaks:
            raise LookupError("on purpose")
        self.acted.append(number)
        return msg.Refused(reason="no") if number in self.refused else msg.Ack()


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class TestToWorkers:
    @pytest.fixture
    def worker(self, closing: ExitStack) -> Peer:
        peer = Peer()
        self.server = FlightServer("127.0.0.1", control=peer.as_worker, partitions=None)
        closing.callback(self.server.close)
        self.senders = Senders(FlightControlClient)
        closing.callback(self.senders.close)
        return peer

    def send(self, messages: list[msg.ToTaskManager]) -> list[SendFailure | None]:
        fates: list[SendFailure | None] = []
        done = threading.Semaphore(0)

        def reported(failed: SendFailure | None) -> None:
            fates.append(failed)
            done.release()

        self.senders.send_all(
            WORKER, self.server.address, [OutgoingMessage(message, reported) for message in messages]
        )
        for _ in messages:
            assert done.acquire(timeout=WAIT_S)
        return fates

    def test_each_has_its_own_fate(self, worker: Peer) -> None:
        worker.refused, worker.breaks = {3}, {5}
        fates = self.send([msg.CancelTask(attempt=attempt(n)) for n in range(8)])
        assert fates[3] == SendFailure("tm refused CancelTask: no", refused=True)
        assert fates[5] == SendFailure("CancelTask to tm failed: LookupError: on purpose")
        assert [n for n, on_outcome in enumerate(fates) if on_outcome is not None] == [3, 5]
        assert worker.requests == [8]
        assert worker.acted == [0, 1, 2, 3, 4, 6, 7]

    def test_a_job_of_thousands_of_tasks_takes_a_few_requests(self, worker: Peer) -> None:
        count = 2 * BUNDLE_MESSAGES_MAX + 1
        assert set(self.send([msg.CancelTask(attempt=attempt(n)) for n in range(count)])) == {None}
        assert worker.requests == [BUNDLE_MESSAGES_MAX, BUNDLE_MESSAGES_MAX, 1]
        assert worker.acted == list(range(count))

    def test_large_messages_are_divided_and_one_that_is_too_large_fails_alone(self, worker: Peer) -> None:
        """Three fill two requests; the fourth fits into none."""
        sizes = [FRAME_BYTES_MAX // 2 - 1_000] * 3 + [FRAME_BYTES_MAX + 1, 10]
        fates = self.send([splits(n, size) for n, size in enumerate(sizes)])
        assert [on_outcome is None for on_outcome in fates] == [True, True, True, False, True]
        assert fates[3] is not None
        assert not fates[3].refused
        assert "limit" in fates[3].reason
        assert worker.requests == [2, 1, 1]
        assert worker.acted == [0, 1, 2, 4]


def splits(number: int, size: int) -> msg.AssignSplits:
    return msg.AssignSplits(attempt=attempt(number), splits=(msg.Split(id="s", data=bytes(size)),))


def test_reports_that_gather_are_one_request_that_is_repeated_until_it_is_answered(
    closing: ExitStack,
) -> None:
    """The master is silent for longer than a call may take: what it has heard comes again, whole.

    A request that was given up may still be acted on, at any time later: the simulation shows that this does
    no harm.
    """
    master = Peer()
    server = FlightServer("127.0.0.1", control=master.as_master, partitions=None)
    closing.callback(server.close)
    client = FlightControlClient(server.address, timeout_s=0.5)
    closing.callback(client.close)
    sender = ReportSender(
        client,
        clock=SystemClock(),
        patience_ms=60_000,
        on_answer=lambda: None,
        on_give_up=lambda _why: None,
    )
    master.gate.clear()
    sender.start()
    sender.post(report(0))
    assert master.entered.wait(WAIT_S)
    for number in range(1, 5):
        sender.post(report(number))
    while len(master.requests) < 2:  # the first one, again
        master.entered.clear()
        assert master.entered.wait(WAIT_S)
    master.gate.set()
    sender.close(WAIT_S)
    assert set(master.requests) == {1, 4}
    assert master.requests.count(4) == 1
    assert [number for number in master.acted if number > 0] == [1, 2, 3, 4]
    assert master.acted[0] == 0


def report(number: int) -> msg.EndOfDataReached:
    return msg.EndOfDataReached(attempt=attempt(number))
