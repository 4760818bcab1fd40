"""Messages to workers: one connection and one ordered sender for each TaskManager.

Each message has its own outcome, also when several are sent in one request (`unistream.model.bundle`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from unistream.base.crash_points import crash_point
from unistream.base.errors import NothingListens, Unreachable
from unistream.base.ids import TaskManagerId
from unistream.master.loop import OrderedGatherer
from unistream.model.bundle import Parcel, parcels
from unistream.model.messages import (
    Answer,
    Broken,
    CheckpointCompleted,
    Refused,
    ToTaskManager,
    TriggerCheckpoint,
)
from unistream.port.transport import ControlClient

Connect = Callable[[str], ControlClient]
"""Flight location -> client; returns at once."""


@dataclass(frozen=True, slots=True)
class SendFailure:
    """Why a message was not acknowledged. `refused`: the worker certainly did not act on it;
    `nobody_there`: nothing listens at its address."""

    reason: str
    refused: bool = False
    nobody_there: bool = False


OnOutcome = Callable[[SendFailure | None], None]
"""Called once with the outcome, from any thread, must not block. None: acknowledged."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message and the callback for its outcome."""

    message: ToTaskManager
    on_outcome: OnOutcome


CLOSE_TIMEOUT_S: Final = 2.0  # a call in flight may hold its thread for RPC_TIMEOUT_S; it is a daemon

logger = logging.getLogger(__name__)


class _WorkerSender:
    """The connection to one worker, used by a thread of its own. Messages queued during a request are sent
    together in the next one."""

    def __init__(self, task_manager: TaskManagerId, address: str, connect: Connect) -> None:
        self.task_manager = task_manager
        self.address = address
        self._connect = connect
        self._client: ControlClient | None = None
        self._worker: OrderedGatherer[OutgoingMessage] = OrderedGatherer(
            f"send-{task_manager}", self._deliver_all, self._disconnect
        )
        self._given_up: str | None = None

    def send(self, messages: Sequence[OutgoingMessage]) -> None:
        if not self._worker.submit(messages):
            _fail_all(messages, SendFailure(self._given_up or "the sender is closed", refused=True))

    def give_up(self, reason: str) -> None:
        """Fails all queued messages with `reason`; nothing more is sent."""
        self._given_up = reason
        self._worker.close(0)

    def close(self) -> None:
        """Sends what is queued, waits a little."""
        if not self._worker.close(CLOSE_TIMEOUT_S):
            logger.warning("event=sender_busy_at_close task_manager=%s", self.task_manager)

    def _deliver_all(self, messages: Sequence[OutgoingMessage]) -> None:
        done = 0
        for parcel in parcels([outgoing.message for outgoing in messages]):
            sent = messages[done : done + len(parcel.messages)]
            done += len(sent)
            failed = self._deliver(parcel)
            for outgoing, outcome in zip(sent, failed, strict=True):
                if outcome is None:
                    _pass_crash_point(outgoing.message)
                outgoing.on_outcome(outcome)

    def _deliver(self, parcel: Parcel[ToTaskManager]) -> Sequence[SendFailure | None]:
        """Tries once: the job's machine decides about retries."""
        if self._given_up is not None:
            return [SendFailure(self._given_up, refused=True)] * len(parcel.messages)
        try:
            if self._client is None:
                self._client = self._connect(self.address)
            answers = parcel.answers(self._client.call(parcel.request))
        except Unreachable as error:
            return unanswered(
                self.task_manager, parcel, str(error), nobody_there=isinstance(error, NothingListens)
            )
        except Exception as error:  # any error of a transport: the outcome must be reported
            return [
                SendFailure(f"{_name(m)} to {self.task_manager} failed: {error}") for m in parcel.messages
            ]
        return [outcome_of(self.task_manager, *pair) for pair in zip(parcel.messages, answers, strict=True)]

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def _pass_crash_point(sent: ToTaskManager) -> None:
    match sent:
        case TriggerCheckpoint():
            crash_point("trigger.sent")
        case CheckpointCompleted():
            crash_point("notify.sent")


def unanswered(
    task_manager: TaskManagerId, parcel: Parcel[ToTaskManager], why: str, *, nobody_there: bool
) -> list[SendFailure]:
    """The outcome of each message of a request without an answer."""
    return [
        SendFailure(f"{task_manager} did not answer {_name(message)}: {why}", nobody_there=nobody_there)
        for message in parcel.messages
    ]


def outcome_of(
    task_manager: TaskManagerId, message: ToTaskManager, answer: Answer | Broken
) -> SendFailure | None:
    """The outcome of a message by its answer."""
    if isinstance(answer, Refused):
        return SendFailure(f"{task_manager} refused {_name(message)}: {answer.reason}", refused=True)
    if isinstance(answer, Broken):
        return SendFailure(f"{_name(message)} to {task_manager} failed: {answer.reason}")
    return None


def _name(message: ToTaskManager) -> str:
    return type(message).__name__


def _fail_all(messages: Sequence[OutgoingMessage], failed: SendFailure) -> None:
    for outgoing in messages:
        outgoing.on_outcome(failed)


class Senders:
    """All connections to workers of one cluster. Thread-safe; `send` never blocks."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._senders: dict[TaskManagerId, _WorkerSender] = {}
        self._closed = False

    def send(
        self,
        task_manager: TaskManagerId,
        address: str,
        message: ToTaskManager,
        on_outcome: OnOutcome | None = None,
    ) -> None:
        """See `Messages`."""
        self.send_all(task_manager, address, [OutgoingMessage(message, on_outcome or _log_failure)])

    def send_all(
        self, task_manager: TaskManagerId, address: str, messages: Sequence[OutgoingMessage]
    ) -> None:
        """See `Messages`."""
        with self._lock:
            sender = self._senders.get(task_manager)
            if sender is None and not self._closed:
                sender = _WorkerSender(task_manager, address, self._connect)
                self._senders[task_manager] = sender
        if sender is None:
            _fail_all(messages, SendFailure("the cluster is shutting down", refused=True))
            return
        sender.send(messages)

    def forget(self, task_manager: TaskManagerId, reason: str) -> None:
        """See `Messages`."""
        with self._lock:
            sender = self._senders.pop(task_manager, None)
        if sender is not None:
            sender.give_up(reason)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            senders, self._senders = list(self._senders.values()), {}
        for sender in senders:
            sender.close()


def _log_failure(failed: SendFailure | None) -> None:
    if failed is not None:
        logger.warning("event=message_undelivered reason=%r", failed.reason)
