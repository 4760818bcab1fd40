"""Calls a user's function for a row so that a failure leaves nothing behind: `on_error` of `process`."""

from __future__ import annotations

from typing import Any

from unistream.operator.common import RowErrors, check_returned_nothing
from unistream.operator.process.context import Collector
from unistream.operator.process.undo import Undo


class CallGuard:
    """The guard of one operator's calls.

    Attributes:
        undo: What its state and timers note their changes in.
    """

    def __init__(self, function: Any, errors: RowErrors) -> None:
        self.undo = Undo()
        self._function = function
        self._errors = errors
        self._failed: dict[int, BaseException] = {}

    def call(self, row: Any, context: Any, out: Collector) -> None:
        """`process_element`. If it fails, or emits what does not match the schema, state, timers and output
        are as before the call, and the failure is noted. Raises what fails the job."""
        undo = self.undo
        undo.begin()
        try:
            if (returned := self._function.process_element(row, context, out)) is not None:
                check_returned_nothing(returned)
            out.check()
        except Exception as error:
            undo.roll_back()
            if not self._errors.takes(error):
                raise
            out.take_back()
            self._failed[out.place.position] = error
        else:
            undo.end()

    def failed(self) -> dict[int, BaseException]:
        """Position of each row of the batch whose call has failed -> why; forgets them."""
        failed, self._failed = self._failed, {}
        return failed
