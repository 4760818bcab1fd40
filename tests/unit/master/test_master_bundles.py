"""Messages to a worker that travel together: order, fates, what is lost and what is repeated."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from tests.eventually import WAIT_S
from unistream.base.errors import NothingListens, ProtocolError, Unreachable
from unistream.base.ids import (
    AllocationId,
    AttemptId,
    JobId,
    LeaderEpoch,
    LineageId,
    TaskManagerId,
    VertexId,
)
from unistream.core import contract
from unistream.core.contract import AttemptView
from unistream.master.job.worker_messages import WorkerMessages
from unistream.master.loop.ordered import OrderedGatherer
from unistream.master.service.senders import OutgoingMessage, Senders, SendFailure
from unistream.model import messages as msg
from unistream.model.bundle import answer_each
from unistream.model.codec import decode_answer, decode_for_task_manager, decode_to_task_manager, encode
from unistream.model.deployment import TaskDeployment
from unistream.model.graph import JobVertex

WORKER = TaskManagerId("tm")
JOB = JobId("j")


def attempt(number: int) -> AttemptId:
    return AttemptId(JOB, VertexId("v"), number, 0)


def cancel(number: int) -> msg.CancelTask:
    return msg.CancelTask(attempt=attempt(number))


class Peer:
    """A worker behind a wire: keeps requests, and what was acted on, by subtask.

    `fails`: subtask (of a deployment: attempt) -> what becomes of its message; `outcomes`: of whole requests,
    first to last.
    """

    def __init__(self, *outcomes: Exception | msg.Answer) -> None:
        self.fails: dict[int, msg.Answer | Exception] = {}
        self.outcomes = list(outcomes)
        self.requests: list[list[int]] = []
        self.acted: list[int] = []
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.closed = threading.Event()

    def call(self, request: msg.Request) -> msg.Answer:
        message = decode_for_task_manager(encode(request))
        if isinstance(message, msg.Bundle):
            inside = [decode_to_task_manager(one) for one in message.messages]
            self.requests.append([_index(one) for one in inside])
        else:
            self.requests.append([_index(message)])
        self.entered.set()
        assert self.gate.wait(WAIT_S)
        if self.outcomes:
            outcome = self.outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        if isinstance(message, msg.Bundle):
            answers = answer_each(message, lambda one: self._act(decode_to_task_manager(one)))
            return decode_answer(encode(answers))
        return self._act(message)

    def _act(self, message: msg.ToTaskManager) -> msg.Answer:
        number = _index(message)
        self.acted.append(number)
        outcome = self.fails.get(number, msg.Ack())
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def close(self) -> None:
        self.closed.set()


def _index(message: msg.ToTaskManager) -> int:
    if isinstance(message, msg.DeployTask):
        return message.deployment.attempt.attempt
    assert isinstance(message, msg.CancelTask)
    return message.attempt.index


class Fates:
    """What became of each message, by subtask."""

    def __init__(self) -> None:
        self.reported: list[tuple[int, SendFailure | None]] = []
        self._told = threading.Condition()

    def outgoing_messages(self, numbers: Sequence[int]) -> list[OutgoingMessage]:
        def reported(number: int, failed: SendFailure | None) -> None:
            with self._told:
                self.reported.append((number, failed))
                self._told.notify()

        return [OutgoingMessage(cancel(n), lambda failed, n=n: reported(n, failed)) for n in numbers]  # type: ignore[misc]

    def wait(self, count: int) -> list[tuple[int, SendFailure | None]]:
        with self._told:
            assert self._told.wait_for(lambda: len(self.reported) >= count, WAIT_S)
            return self.reported


def send(peer: Peer, *groups: Sequence[int]) -> tuple[Senders, Fates]:
    senders, fates = Senders(lambda _address: peer), Fates()
    for numbers in groups:
        senders.send_all(WORKER, "a", fates.outgoing_messages(numbers))
    return senders, fates


def test_what_is_sent_together_is_one_request_in_its_order() -> None:
    peer = Peer()
    senders, fates = send(peer, [3, 1, 2])
    assert fates.wait(3) == [(3, None), (1, None), (2, None)]
    assert peer.requests == [[3, 1, 2]]
    senders.close()
    assert peer.closed.wait(WAIT_S)


def test_what_gathers_while_a_request_is_under_way_goes_in_the_next() -> None:
    peer = Peer()
    peer.gate.clear()
    senders, fates = send(peer, [0])
    assert peer.entered.wait(WAIT_S)
    for numbers in ([1, 2], [3], [4]):
        senders.send_all(WORKER, "a", fates.outgoing_messages(numbers))
    peer.gate.set()
    assert fates.wait(5) == [(n, None) for n in range(5)]
    assert peer.requests == [[0], [1, 2, 3, 4]]
    senders.close()


@pytest.mark.parametrize(
    ("outcome", "on_outcome"),
    [
        (msg.Refused(reason="no"), SendFailure("tm refused CancelTask: no", refused=True)),
        (ProtocolError("what"), SendFailure("CancelTask to tm failed: what")),
        (LookupError("oh"), SendFailure("CancelTask to tm failed: LookupError: oh")),
    ],
)
def test_one_that_fails_in_the_middle_fails_alone(
    outcome: msg.Answer | Exception, on_outcome: SendFailure
) -> None:
    peer = Peer()
    peer.fails[1] = outcome
    senders, fates = send(peer, [0, 1, 2])
    assert fates.wait(3) == [(0, None), (1, on_outcome), (2, None)]
    assert peer.acted == [0, 1, 2]
    senders.close()


@pytest.mark.parametrize(
    ("outcome", "on_outcome"),
    [
        pytest.param(Unreachable("x"), SendFailure("tm did not answer CancelTask: x"), id="unknown"),
        pytest.param(
            NothingListens("x"),
            SendFailure("tm did not answer CancelTask: x", nobody_there=True),
            id="nobody",
        ),
        pytest.param(
            OSError("y"), SendFailure("CancelTask to tm failed: y"), id="whatever a transport raises"
        ),
        pytest.param(
            msg.Refused(reason="it ends"),
            SendFailure("tm refused CancelTask: it ends", refused=True),
            id="refused as a whole",
        ),
        pytest.param(
            msg.Answers(answers=(msg.Ack(),)),
            SendFailure("CancelTask to tm failed: 1 answers to 2 messages"),
            id="an answer that does not fit",
        ),
    ],
)
def test_a_request_that_fails_is_told_of_each_and_sent_again_by_whom_it_concerns(
    outcome: Exception | msg.Answer, on_outcome: SendFailure
) -> None:
    peer = Peer(outcome)
    senders, fates = send(peer, [0, 1])
    assert fates.wait(2) == [(0, on_outcome), (1, on_outcome)]
    senders.send_all(WORKER, "a", fates.outgoing_messages([0, 1]))
    assert fates.wait(4)[2:] == [(0, None), (1, None)]
    assert peer.requests == [[0, 1], [0, 1]]
    senders.close()


def test_a_lost_worker_gets_nothing_of_what_has_gathered() -> None:
    peer = Peer()
    peer.gate.clear()
    senders, fates = send(peer, [0])
    assert peer.entered.wait(WAIT_S)
    senders.send_all(WORKER, "a", fates.outgoing_messages([1, 2]))
    senders.forget(WORKER, "killed")
    peer.gate.set()
    lost = SendFailure("killed", refused=True)
    assert fates.wait(3) == [(0, None), (1, lost), (2, lost)]
    assert peer.requests == [[0]]
    senders.close()
    senders.send_all(WORKER, "a", fates.outgoing_messages([3, 4]))
    late = SendFailure("the cluster is shutting down", refused=True)
    assert fates.wait(5)[3:] == [(3, late), (4, late)]


class TestOutgoing:
    """What one job says at once."""

    def test_is_gathered_by_worker_and_each_fate_becomes_an_event(self) -> None:
        peers = {"a": Peer(), "b": Peer()}
        peers["b"].fails[1] = msg.Refused(reason="no")
        events, heard = [], threading.Semaphore(0)

        def post(event: contract.Event) -> None:
            events.append(event)
            heard.release()

        senders = Senders(lambda address: peers[address])
        outgoing = WorkerMessages(JOB, senders, post)
        outgoing.granted([lease("a"), lease("b")])
        for number, where in enumerate(["a", "b", "a", "nowhere"]):
            command = contract.Send(task_manager=TaskManagerId(where), message=cancel(number), token=number)
            outgoing.add(command)
        assert [type(event) for event in events] == [contract.Undelivered], "one of a worker without a slot"
        outgoing.flush()
        outgoing.flush()
        for _ in range(4):
            assert heard.acquire(timeout=WAIT_S)
        assert {e.token: getattr(e, "refused", None) for e in events} == {0: None, 1: True, 2: None, 3: True}  # type: ignore[union-attr]
        assert (peers["a"].requests, peers["b"].requests) == ([[0, 2]], [[1]])
        senders.close()

    def test_what_was_reported_as_not_deployed_is_not_deployed_when_the_store_is_back(self) -> None:
        """A command may be performed twice (I16): the machine gives the subtask a new attempt meanwhile."""
        peer, events = Peer(), list[contract.Event]()
        senders = Senders(lambda _address: peer)
        outcomes: list[Exception | None] = [Unreachable("the store is away"), None]

        def store(_number: int) -> None:
            outcome = outcomes.pop(0)
            if outcome is not None:
                raise outcome

        outgoing = WorkerMessages(JOB, senders, events.append, before_deploy=store)
        outgoing.granted([lease("a")])
        for number in (0, 0, 1):
            message = msg.DeployTask(deployment=deployment(number))
            outgoing.add(contract.Send(task_manager=TaskManagerId("a"), message=message, token=number))
        assert [
            (type(event), event.token) for event in events if isinstance(event, contract.Undelivered)
        ] == [(contract.Undelivered, 0)] * 2
        outgoing.flush()
        senders.close()
        assert peer.acted == [1], "the next attempt of the subtask"
        assert not outcomes

    def test_the_last_resort_cancels_what_may_run(self) -> None:
        peer = Peer()
        senders = Senders(lambda _address: peer)
        outgoing = WorkerMessages(JOB, senders, lambda _event: None)
        outgoing.granted([lease("a")])
        outgoing.cancel(
            AttemptView(attempt=attempt(n), state=state, task_manager=where)
            for n, (state, where) in enumerate(
                [
                    ("RUNNING", TaskManagerId("a")),
                    ("FINISHED", TaskManagerId("a")),
                    ("RUNNING", TaskManagerId("elsewhere")),
                    ("CREATED", None),
                    ("DEPLOYING", TaskManagerId("a")),
                ]
            )
        )
        senders.close()
        assert peer.acted == [0, 4]


def deployment(number: int) -> TaskDeployment:
    vertex = VertexId("v")
    return TaskDeployment(
        attempt=AttemptId(JOB, vertex, 0, number),
        job_name="j",
        lineage=LineageId("l"),
        epoch=LeaderEpoch(1),
        vertex=JobVertex(id=vertex, name="v", operators=(), parallelism=1, max_parallelism=1),
        artifact="",
        checkpoint_root="",
        checkpointing=True,
    )


def lease(worker: str) -> contract.SlotLease:
    return contract.SlotLease(
        request=worker,
        allocation=AllocationId(worker),
        task_manager=TaskManagerId(worker),
        address=worker,
    )


class TestGatherer:
    def test_one_failure_does_not_end_it_and_the_end_comes_last(self) -> None:
        seen: list[object] = []

        def work(items: Sequence[int]) -> None:
            seen.append(list(items))
            if 1 in items:
                raise LookupError("on purpose")

        gatherer = OrderedGatherer("test", work, lambda: seen.append("end"))
        gatherer.submit([1, 2])
        gatherer.submit([3])
        assert gatherer.close(WAIT_S)
        assert seen in ([[1, 2], [3], "end"], [[1, 2, 3], "end"])
        assert not gatherer.submit([4])
        assert gatherer.close(WAIT_S), "twice is fine"
