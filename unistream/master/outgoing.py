"""What one job says to its workers: gathered for each of them, and sent together.

A job of hundreds of tasks deploys them all in one go; what the machine decides at once for one worker
leaves in one request (`unistream.model.bundle`), in the order in which it was decided.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from unistream.base.ids import JobId, TaskManagerId
from unistream.core import contract
from unistream.core.contract import AttemptView
from unistream.master.job_info import TERMINAL_STATES
from unistream.master.ports import Messages
from unistream.master.senders import Failed, Letter
from unistream.model.messages import CancelTask

logger = logging.getLogger(__name__)


class Outgoing:
    """The messages of one job. Used by the job's thread; `post` is called from any."""

    def __init__(self, job: JobId, senders: Messages, post: Callable[[contract.Event], None]) -> None:
        self._job = job
        self._senders = senders
        self._post = post
        self._addresses: dict[TaskManagerId, str] = {}
        self._letters: dict[TaskManagerId, list[Letter]] = {}

    def granted(self, leases: Iterable[contract.SlotLease]) -> None:
        """The job has slots there."""
        self._addresses.update({lease.task_manager: lease.address for lease in leases})

    def address(self, task_manager: TaskManagerId | None) -> str | None:
        """Flight location of a worker that the job has, or has had, a slot of."""
        return None if task_manager is None else self._addresses.get(task_manager)

    def add(self, command: contract.Send) -> None:
        """Leaves with the next `flush`. Its fate comes back as an event, if it is asked for."""
        token = command.token

        def fate(failed: Failed | None) -> None:
            if token is not None and failed is None:
                self._post(contract.Delivered(token=token))
            elif token is not None and failed is not None:
                self._post(contract.Undelivered(token=token, reason=failed.reason, refused=failed.refused))
            elif failed is not None:
                logger.warning("event=message_undelivered job=%s reason=%r", self._job, failed.reason)

        if command.task_manager in self._addresses:
            self._letters.setdefault(command.task_manager, []).append(Letter(command.message, fate))
        else:
            fate(Failed(f"{command.task_manager} has no slot of this job", refused=True))

    def flush(self) -> None:
        """Hands over what was added, without waiting for anything."""
        gathered, self._letters = self._letters, {}
        for task_manager, letters in gathered.items():
            self._senders.send_all(task_manager, self._addresses[task_manager], letters)

    def cancel(self, attempts: Iterable[AttemptView]) -> None:
        """Those that may run, whatever the machine knows of it."""
        for attempt in attempts:
            address = self.address(attempt.task_manager)
            if attempt.task_manager and address and attempt.state not in TERMINAL_STATES:
                self._senders.send(attempt.task_manager, address, CancelTask(attempt=attempt.attempt))
