"""User functions per row without keys; their state is lists (Flink's CheckpointedFunction)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import repeat

import pyarrow as pa

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.ids import CheckpointId
from unistream.model.columns.column_values import column_values, row_values
from unistream.model.elements import Batch
from unistream.model.snapshot import ListMode, OperatorSnapshot, OperatorState
from unistream.model.state import OperatorListDescriptor, check_declarations
from unistream.operator.common import (
    Row,
    RowErrors,
    RowOperator,
    check_defined,
    check_methods,
    check_returned_nothing,
    function_name,
)
from unistream.operator.process.context import (
    Clocks,
    Collector,
    SideSchemas,
    declarations,
    declared,
    row_schemas,
)
from unistream.operator.process.guard import CallGuard
from unistream.operator.process.list_state import OperatorList
from unistream.operator.process.undo import Undo, UndoableOperatorList
from unistream.operator.process.user_metrics import UserMetrics
from unistream.port.dead_letters import OnError


class FunctionContext(Clocks):
    """The context of a function without keys.

    Attributes:
        timestamp: Event time of the row (None if it has none); ms.
        index, parallelism: The index of the subtask, and the number of subtasks.
    """

    def __init__(
        self, index: int, parallelism: int, restored: OperatorState, undo: Undo | None = None
    ) -> None:
        super().__init__()
        self._undo = undo
        self.timestamp: int | None = None
        self.index = index
        self.parallelism = parallelism
        self.is_restored = restored.is_restored
        self._restored = restored
        self._lists: dict[str, OperatorList] = {}

    @property
    def lists(self) -> dict[str, OperatorList]:
        """Lists that were opened, by name."""
        return self._lists

    def operator_state(
        self,
        descriptor: OperatorListDescriptor | str,
        element_type: pa.DataType | None = None,
        mode: ListMode = ListMode.SPLIT,
    ) -> OperatorList:
        """A list of this subtask; always the same object.

        Args:
            descriptor: Its declaration. If it is not an attribute of the function, or only a name, `open`
                must open the list: stored lists that are not opened are dropped at the next checkpoint.
            element_type: With a name: Arrow type of an element.
            mode: With a name: how the list is redistributed after rescaling.

        Raises:
            ConfigError: declared twice with different types, or stored with another type or mode.
        """
        if isinstance(descriptor, str):
            if element_type is None:
                raise ConfigError(
                    f"operator state {descriptor!r} needs a type, such as pa.int64(), or a descriptor"
                )
            descriptor = OperatorListDescriptor(descriptor, element_type, mode)
        name = descriptor.name
        found = self._lists.get(name)
        if found is None:
            stored: Sequence[bytes] = self._restored.lists.get(name, ())
            make = OperatorList if self._undo is None else partial(UndoableOperatorList, undo=self._undo)
            found = make(descriptor, stored, self._restored.modes.get(name))
            self._lists[name] = found
        elif found.descriptor != descriptor:
            raise ConfigError(
                f"operator state {name!r} is declared twice, as {_text(found.descriptor)} and as "
                f"{_text(descriptor)}"
            )
        return found


class ProcessFunction:
    """Subclass it and override `process_element`.

    >>> import pyarrow as pa, unistream as us
    >>> class InPairs(us.ProcessFunction):
    ...     held = us.OperatorListDescriptor("held", pa.int64())
    ...     def open(self, context):
    ...         self.waiting = context.operator_state(self.held)
    ...     def process_element(self, row, context, out):
    ...         self.waiting.add(row["n"])
    ...         if len(self.waiting.get()) == 2:
    ...             out.emit({"sum": sum(self.waiting.get())})
    ...             self.waiting.clear()
    """

    def open(self, context: FunctionContext) -> None:
        """Called once, before the first row, with restored state."""

    def process_element(self, row: Row, context: FunctionContext, out: Collector) -> None:
        """Processes a row, a dict by column."""
        raise TypeError(f"{type(self).__name__} must define process_element(row, context, out)")

    def snapshot(self, context: FunctionContext) -> None:
        """Called before a snapshot: update the lists here, if they are not always up to date."""

    def finish(self, context: FunctionContext, out: Collector) -> None:
        """Called once, at the end of the input: emit buffered rows here. What the function keeps in lists is
        used up then: snapshots that are taken later do not have it, and a job that starts from one does not
        call `finish` again for this input."""

    def close(self) -> None:
        """Called once, at the end, also after a failure."""


class ProcessOperator(RowOperator):
    """Runs a `ProcessFunction`.

    Args:
        returns: Schema of the main output; None: inferred from the first rows, then fixed.
        side_outputs: Schemas of side outputs by tag; those of others are inferred.
        on_error: For rows whose call of `process_element` fails; `returns` is needed then. Lists are as they
            were before the call.

    Raises:
        ConfigError: declarations of the function conflict.
    """

    def __init__(
        self,
        function: ProcessFunction,
        *,
        returns: pa.Schema | None = None,
        side_outputs: SideSchemas | None = None,
        on_error: OnError = "fail",
    ) -> None:
        check_declarations(function_name(function), declarations(function, OperatorListDescriptor))
        check_defined(function, ProcessFunction, "process_element")
        check_methods(function, "open", "process_element", "snapshot", "finish", "close")
        self._function = function
        self._schemas = row_schemas(returns, side_outputs)
        self.errors = RowErrors(on_error)
        self._guard = None if self.errors.fails else CallGuard(function, self.errors)
        self._process: FunctionContext | None = None
        self._finished = False

    def initialize_state(self, state: OperatorState) -> None:
        undo = None if self._guard is None else self._guard.undo
        self._process = FunctionContext(self.context.index, self.context.parallelism, state, undo)
        self._process.metrics = UserMetrics(self.context.metrics)

    def declared_lists(self) -> tuple[OperatorListDescriptor, ...]:
        """Lists that are declared as attributes of the function."""
        return declared(self._function, OperatorListDescriptor)

    def open(self) -> None:
        context = self._ready()
        try:
            for descriptor in self.declared_lists():
                context.operator_state(descriptor)
            self._function.open(context)
        except ConfigError as error:
            raise ConfigError(f"operator {self.context.name!r}: {error}") from error
        except Exception as error:
            raise self.user_error(self._what("open"), error) from error

    def process_batch(self, batch: Batch, input_index: int) -> None:
        context, out = self._ready(), Collector(self._schemas)
        times = repeat(None) if batch.timestamps is None else column_values(batch.timestamps)
        process = self._function.process_element if self._guard is None else self._guard.call
        position = 0
        try:
            for position, (row, timestamp) in enumerate(zip(row_values(batch.records), times, strict=False)):
                context.timestamp, out.place.position = timestamp, position
                if (returned := process(row, context, out)) is not None:
                    check_returned_nothing(returned)
        except Exception as error:
            raise self.user_error(self._what("process_element"), error, position) from error
        if self._guard is not None:
            self.send_failed(batch, self._guard.failed())
        out.flush(self, function_name(self._function), batch.timestamps)

    def process_watermark(self, timestamp: int) -> None:
        self._ready().watermark = timestamp

    def finish(self) -> None:
        context, out = self._ready(), Collector(self._schemas)
        context.timestamp = None
        try:
            self._function.finish(context, out)
        except Exception as error:
            raise self.user_error(self._what("finish"), error) from error
        out.flush(self, function_name(self._function), None)
        self._finished = True

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        context = self._ready()
        try:
            self._function.snapshot(context)
        except UserCodeError:
            raise
        except Exception as error:
            raise self.user_error(self._what("snapshot"), error) from error
        if self._finished:  # what it has emitted is before the barrier
            return OperatorSnapshot()
        return OperatorSnapshot(lists={name: found.snapshot() for name, found in context.lists.items()})

    def close(self) -> None:
        self._function.close()

    def _ready(self) -> FunctionContext:
        assert self._process is not None, "initialize_state comes first"
        self._process.now_ms = self.context.timers.now_ms()
        return self._process

    def _what(self, what: str) -> str:
        return f"{function_name(self._function)}, {what}"


def _text(descriptor: OperatorListDescriptor) -> str:
    return f"{descriptor.mode.value} list of {descriptor.type}"
