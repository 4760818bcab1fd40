"""Background work of a task's operators: it runs on a pool thread, and its result comes back as mail.

    run(action, then) ─► [pool thread] action ─► mail ─► [task's thread] then
                                           └─ raised: the task's thread raises it, named by the operator

The task does not end while anything is under way, unless it fails or is cancelled.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor

from unistream.worker.task.chain import ErrorBoundary
from unistream.worker.task.mailbox import BackgroundDone, Mailbox


class BackgroundWork:
    """The background work of one task."""

    def __init__(self, executor: Executor, mailbox: Mailbox) -> None:
        self._executor = executor
        self._mailbox = mailbox
        self._under_way = 0

    @property
    def is_busy(self) -> bool:
        """Some work has not been finished."""
        return self._under_way > 0

    def runner(self, fence: ErrorBoundary) -> Callable[[Callable[[], None], Callable[[], None]], None]:
        """`OperatorContext.run_in_background` of one operator."""
        return lambda action, then: self._run(fence, action, then)

    def _run(self, fence: ErrorBoundary, action: Callable[[], None], then: Callable[[], None]) -> None:
        self._under_way += 1
        self._executor.submit(self._work, fence, action, then)

    def _work(self, fence: ErrorBoundary, action: Callable[[], None], then: Callable[[], None]) -> None:
        failure: BaseException | None = None
        try:
            action()
        except BaseException as error:  # whatever it is, it fails the task, on the task's own thread
            failure = error
        self._mailbox.post(BackgroundDone(finish=lambda: self._finish(fence, then, failure)))

    def _finish(self, fence: ErrorBoundary, then: Callable[[], None], failure: BaseException | None) -> None:
        self._under_way -= 1

        def finish() -> None:
            if failure is not None:
                raise failure
            then()

        fence(finish, "working in the background")
