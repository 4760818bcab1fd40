"""What a worker reports: together what has gathered, in order, again until it is answered."""

from __future__ import annotations

import logging
import threading

import pytest

from tests.eventually import WAIT_S
from unistream.base.clock import SystemClock
from unistream.base.errors import ProtocolError, Unreachable
from unistream.base.ids import AttemptId, CheckpointId, JobId, VertexId
from unistream.model import messages as msg
from unistream.model.bundle import answer_each
from unistream.model.codec import decode_answer, decode_for_job_manager, decode_task_report, encode
from unistream.model.snapshot import TaskSnapshot
from unistream.worker.process.reports import ReportSender
from unistream.worker.task import task_failure


def report(number: int) -> msg.EndOfDataReached:
    return msg.EndOfDataReached(attempt=AttemptId(JobId("j"), VertexId("v"), number, 0))


def acked(number: int) -> msg.CheckpointAcked:
    attempt = AttemptId(JobId("j"), VertexId("v"), number, 0)
    snapshot = TaskSnapshot(operators={})
    return msg.CheckpointAcked(attempt=attempt, checkpoint_id=CheckpointId(7), snapshot=snapshot)


class Master:
    """Behind a wire: keeps requests as lists of ``(message, subtask)``. The first request waits for `gate`.

    `outcomes`: of whole requests, first to last; None: it is acted on. `breaks`: subtasks whose reports it
    cannot act on.
    """

    def __init__(self, *outcomes: Exception | msg.Answer | None) -> None:
        self.outcomes = list(outcomes)
        self.breaks: set[int] = set()
        self.requests: list[list[tuple[str, int]]] = []
        self.acted: list[int] = []
        self.entered = threading.Event()
        self.gate = threading.Event()
        self._acted = threading.Condition()

    def call(self, request: msg.Request) -> msg.Answer:
        message = decode_for_job_manager(encode(request))
        is_bundle = isinstance(message, msg.Bundle)
        inside = [decode_task_report(one) for one in message.messages] if is_bundle else [message]
        self.requests.append([(type(one).__name__, one.attempt.index) for one in inside])
        self.entered.set()
        assert self.gate.wait(WAIT_S)
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is not None:
            return outcome
        if not is_bundle:
            return self._act(inside[0])
        return decode_answer(encode(answer_each(message, lambda one: self._act(decode_task_report(one)))))

    def _act(self, message: msg.TaskReport) -> msg.Answer:
        if message.attempt.index in self.breaks and not isinstance(message, msg.CheckpointDeclined):
            raise ProtocolError("what is this")
        with self._acted:
            self.acted.append(message.attempt.index)
            self._acted.notify()
        return msg.Ack()

    def close(self) -> None: ...

    def await_acted(self, count: int) -> list[int]:
        with self._acted:
            assert self._acted.wait_for(lambda: len(self.acted) >= count, WAIT_S)
            return self.acted


class Sender:
    """A sender with a report under way, so that what is posted next gathers."""

    def __init__(self, master: Master, patience_ms: int = 30_000) -> None:
        self.gave_up = threading.Event()
        self.answers = 0
        self._master = master
        self._sender = ReportSender(
            master,
            clock=SystemClock(),
            patience_ms=patience_ms,
            on_answer=self._answered,
            on_give_up=lambda _why: self.gave_up.set(),
        )
        self._sender.start()
        self._sender.post(report(0))
        assert master.entered.wait(WAIT_S)

    def _answered(self) -> None:
        self.answers += 1

    def post(self, *reports: msg.ToJobManager) -> None:
        """These gather, then everything goes."""
        for one in reports:
            self._sender.post(one)
        self._master.gate.set()

    def close(self) -> None:
        self._sender.close(WAIT_S)


E1 = "EndOfDataReached"


def test_an_idle_sender_sends_at_once_and_a_busy_one_together() -> None:
    master = Master()
    sender = Sender(master)
    sender.post(report(1), report(2), report(3))
    assert master.await_acted(4) == [0, 1, 2, 3]
    assert master.requests == [[(E1, 0)], [(E1, 1), (E1, 2), (E1, 3)]]
    sender.close()
    assert sender.answers == 2


def test_what_was_posted_goes_out_before_the_end() -> None:
    master = Master()
    sender = Sender(master)
    sender.post(report(1), report(2))
    sender.close()
    assert master.acted == [0, 1, 2]


@pytest.mark.parametrize("times", [1, 2])
def test_a_request_without_an_answer_is_repeated_as_it_was(times: int) -> None:
    """Nothing overtakes it, and what comes later does not join it: it may have arrived."""
    master = Master(None, *[Unreachable("lost")] * times)
    sender = Sender(master)
    sender.post(report(1), report(2))
    assert master.await_acted(3) == [0, 1, 2]
    sender.close()
    assert master.requests == [[(E1, 0)], *[[(E1, 1), (E1, 2)]] * (times + 1)]


def test_a_master_that_is_silent_for_too_long_is_given_up() -> None:
    master = Master(None, *[Unreachable("lost")] * 100)
    sender = Sender(master, patience_ms=1)
    sender.post(report(1), report(2))
    assert sender.gave_up.wait(WAIT_S)
    sender.close()
    assert master.acted == [0]


@pytest.mark.parametrize(
    "outcome", [None, ProtocolError("it is not understood")], ids=["one cannot be read", "all as one"]
)
def test_one_that_fails_in_the_middle_fails_alone(outcome: Exception | None) -> None:
    """Also where the request as a whole fails for it: then each goes by itself."""
    master = Master(None, outcome)
    master.breaks.add(2)
    sender = Sender(master)
    sender.post(report(1), report(2), report(3))
    assert master.await_acted(3) == [0, 1, 3]
    sender.close()


def test_a_snapshot_that_cannot_be_told_is_declined() -> None:
    master = Master()
    master.breaks.add(2)
    sender = Sender(master)
    sender.post(acked(1), acked(2), acked(3))
    assert sorted(master.await_acted(4)) == [0, 1, 2, 3]
    sender.close()
    assert master.requests[-1] == [("CheckpointDeclined", 2)]


def test_a_refusal_is_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    master = Master(None, msg.Refused(reason="there is no job j here"))
    sender = Sender(master)
    with caplog.at_level(logging.INFO, logger="unistream"):
        sender.post(report(1), report(2))
        sender.close()
    assert sender.answers == 2
    assert caplog.text.count("event=report_refused message=EndOfDataReached") == 2


def test_a_text_that_no_wire_takes_is_told_in_other_words() -> None:
    failure = task_failure(ValueError("half a pair: \udc80"))
    assert failure.message == "half a pair: \\udc80"
    state = msg.TaskStateChanged(attempt=report(1).attempt, state="FAILED", failure=failure)
    assert decode_task_report(encode(state)) == state


def test_what_cannot_be_written_is_left_out_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    master = Master()
    sender = Sender(master)
    bad = msg.TaskStateChanged(attempt=report(1).attempt, state="\udc80")
    sender.post(bad, report(2), bad, report(3))
    assert master.await_acted(3) == [0, 2, 3]
    sender.close()
    assert "TaskStateChanged cannot be written" in caplog.text
