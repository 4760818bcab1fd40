from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.eventually import WAIT_S
from unistream.base.config import Configuration
from unistream.base.crash_points import (
    DIRECTORY_VARIABLE,
    POINTS_VARIABLE,
    TESTING_VARIABLE,
    crash_point,
    refuse_outside_tests,
)
from unistream.base.errors import AlreadyEnded, ConfigError, Unreachable
from unistream.base.ids import AttemptId, JobId, TaskManagerId, VertexId
from unistream.core.contract import AnswerRequest
from unistream.master.job.open_requests import OpenRequests
from unistream.master.loop.loop import LoopMailbox
from unistream.master.loop.ordered import Pool
from unistream.master.service.cluster_services import create_resource_machine
from unistream.master.service.senders import Senders, SendFailure
from unistream.model import messages as msg
from unistream.port.host import HostTraits

WORKER = TaskManagerId("tm")
CANCEL = msg.CancelTask(attempt=AttemptId(JobId("j"), VertexId("v"), 0, 0))


class ManualClock:
    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class TestMailbox:
    def test_timers_fire_once_in_the_order_of_their_times(self) -> None:
        clock = ManualClock()
        mailbox: LoopMailbox[str, str] = LoopMailbox(clock)
        mailbox.set_timer("late", 20)
        mailbox.set_timer("soon", 10)
        mailbox.set_timer("never", 5)
        mailbox.cancel_timer("never")
        mailbox.cancel_timer("unknown")
        assert mailbox.take(0) == (None, None)
        clock.now_ms = 30
        assert [mailbox.take(0), mailbox.take(0), mailbox.take(0)] == [
            (None, "soon"),
            (None, "late"),
            (None, None),
        ]

    def test_a_timer_that_is_set_again_is_replaced(self) -> None:
        clock = ManualClock()
        mailbox: LoopMailbox[str, str] = LoopMailbox(clock)
        mailbox.set_timer("t", 10)
        clock.now_ms = 9
        mailbox.set_timer("t", 10)
        clock.now_ms = 18
        assert mailbox.take(0) == (None, None)
        clock.now_ms = 19
        assert mailbox.take(0) == (None, "t")

    def test_a_flood_of_events_does_not_hold_back_a_timer(self) -> None:
        clock = ManualClock()
        mailbox: LoopMailbox[str, str] = LoopMailbox(clock)
        mailbox.post("a")
        mailbox.set_timer("t", 0)
        mailbox.post("b")
        assert [mailbox.take(0), mailbox.take(0), mailbox.take(0)] == [(None, "t"), ("a", None), ("b", None)]
        assert mailbox.is_empty

    def test_what_was_posted_is_numbered_also_when_it_is_taken(self) -> None:
        mailbox: LoopMailbox[str, str] = LoopMailbox(ManualClock())
        numbers = [mailbox.posted]
        for event in ("a", "b"):
            mailbox.post(event)
            numbers.append(mailbox.posted)
            mailbox.take(0)
            numbers.append(mailbox.posted)
        assert numbers == [0, 1, 1, 2, 2]


class Client:
    """A `ControlClient` by script: an answer, or an error to raise."""

    def __init__(self, outcomes: list[msg.Answer | Exception]) -> None:
        self.outcomes = outcomes
        self.sent: list[object] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.closed = False

    def call(self, message: object) -> msg.Answer:
        self.sent.append(message)
        self.entered.set()
        assert self.gate.wait(WAIT_S)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def close(self) -> None:
        self.closed = True


class Fates:
    def __init__(self, count: int) -> None:
        self.seen: list[SendFailure | None] = []
        self._all = threading.Semaphore(0)
        self._count = count

    def __call__(self, failed: SendFailure | None) -> None:
        self.seen.append(failed)
        self._all.release()

    def wait(self) -> list[SendFailure | None]:
        for _ in range(self._count):
            assert self._all.acquire(timeout=WAIT_S)
        return self.seen


class TestSenders:
    @pytest.mark.parametrize(
        ("outcome", "on_outcome"),
        [
            pytest.param(msg.Ack(), None, id="acknowledged"),
            pytest.param(
                msg.Refused(reason="no"),
                SendFailure("tm refused CancelTask: no", refused=True),
                id="certainly not done",
            ),
            pytest.param(Unreachable("x"), SendFailure("tm did not answer CancelTask: x"), id="unknown"),
            pytest.param(
                OSError("y"), SendFailure("CancelTask to tm failed: y"), id="whatever a transport raises"
            ),
        ],
    )
    def test_every_message_has_a_fate(
        self, outcome: msg.Answer | Exception, on_outcome: SendFailure | None
    ) -> None:
        fates = Fates(1)
        senders = Senders(lambda _address: Client([outcome]))
        senders.send(WORKER, "a", CANCEL, fates)
        assert fates.wait() == [on_outcome]
        senders.close()

    def test_a_connection_that_cannot_be_made_is_a_fate_too(self) -> None:
        def connect(address: str) -> Client:
            raise ConfigError(f"no location: {address}")

        fates = Fates(1)
        senders = Senders(connect)
        senders.send(WORKER, "a", CANCEL, fates)
        assert "no location: a" in str(fates.wait())
        senders.close()

    def test_messages_of_a_lost_worker_fail_without_being_sent(self) -> None:
        client = Client([msg.Ack()])
        client.gate.clear()
        fates = Fates(3)
        senders = Senders(lambda _address: client)
        senders.send(WORKER, "a", CANCEL, fates)
        assert client.entered.wait(WAIT_S)
        senders.send(WORKER, "a", CANCEL, fates)
        senders.forget(WORKER, "killed")
        client.gate.set()
        senders.close()
        senders.send(WORKER, "a", CANCEL, fates)
        lost, late = (
            SendFailure("killed", refused=True),
            SendFailure("the cluster is shutting down", refused=True),
        )
        assert sorted(fates.wait(), key=str) == sorted([None, lost, late], key=str)
        assert len(client.sent) == 1


def explode() -> None:
    raise LookupError("on purpose")


class TestThreads:
    def test_ordered_work_goes_on_after_a_failure_and_before_the_end(self) -> None:
        done: list[int] = []
        worker = Pool("test", 1)
        worker.submit(lambda: done.append(1))
        worker.submit(explode)
        worker.submit(lambda: done.append(2))
        assert worker.close(WAIT_S)
        assert done == [1, 2]
        assert worker.submit(lambda: done.append(3)).cancelled()

    def test_a_pool_carries_exceptions_and_refuses_after_its_end(self) -> None:
        pool = Pool("test", 2)
        assert isinstance(pool.submit(explode).exception(WAIT_S), LookupError)
        assert pool.close(WAIT_S)
        assert pool.submit(lambda: None).cancelled()


class TestOpenRequests:
    def test_each_is_answered_once(self) -> None:
        requests = OpenRequests()
        first, answer = requests.add()
        _, other = requests.add()
        assert first is not None
        requests.answer(AnswerRequest(request=first, path="/sp"))
        requests.answer(AnswerRequest(request=first, error="again"))
        requests.close("over")
        requests.reject_all("the job ended")
        assert answer.result(0) == "/sp"
        assert str(other.exception(0)) == "the job ended"
        late, refused = requests.add()
        assert late is None
        assert isinstance(refused.exception(0), AlreadyEnded)


DIES = """
from unistream.base.crash_points import crash_point
for _ in range(3):
    crash_point("here")
    print("past", flush=True)
"""


class TestCrashPoints:
    def run(self, points: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        extra = {POINTS_VARIABLE: points} | ({DIRECTORY_VARIABLE: str(folder)} if folder else {})
        return subprocess.run(
            [sys.executable, "-c", DIES],
            env={**os.environ, **extra},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    @pytest.mark.parametrize("points", ["", "elsewhere", "here:4"])
    def test_nothing_happens_unless_asked(self, points: str) -> None:
        ended = self.run(points)
        assert (ended.returncode, ended.stdout) == (0, "past\n" * 3)

    def test_it_dies_when_reached_for_the_nth_time(self) -> None:
        ended = self.run("other, here:2")
        assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, "past\n")

    def test_with_a_folder_it_dies_once_for_all_processes(self, tmp_path: Path) -> None:
        assert self.run("here", tmp_path).returncode == -signal.SIGKILL
        assert self.run("here", tmp_path).stdout == "past\n" * 3

    def test_no_cluster_starts_with_them_outside_of_tests(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(POINTS_VARIABLE, "here")
        monkeypatch.delenv(TESTING_VARIABLE, raising=False)
        with pytest.raises(ConfigError, match="for tests only"):
            refuse_outside_tests()
        monkeypatch.setenv(TESTING_VARIABLE, "1")
        refuse_outside_tests()

    def test_a_typo_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(POINTS_VARIABLE, "here:x")
        with pytest.raises(ConfigError, match="here:x"):
            crash_point("here")


@pytest.mark.parametrize(("bound", "value"), [("min", "2 gb"), ("max", "0")])
def test_options_of_memory_that_contradict_each_other_end_the_cluster_and_not_each_worker(
    bound: str, value: str
) -> None:
    config = Configuration({f"taskmanager.memory.network.{bound}": value})
    with pytest.raises(ConfigError, match=r"taskmanager\.memory\.network"):
        create_resource_machine(config, lambda: "id", None, HostTraits(active=True))
    create_resource_machine(config, lambda: "id", None, HostTraits(active=False))  # workers have their own
