"""A keyed stream and a broadcast stream: rows by key read what the broadcast stream wrote, in every subtask.

(Flink's KeyedBroadcastProcessFunction, FLIP-2 and the "broadcast state" pattern.) Input 0 is keyed, input 1
broadcast. There is no order between the two: a rule may arrive after the rows to which it applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId
from unistream.model.columns.column_values import row_values
from unistream.model.elements import Batch
from unistream.model.snapshot import OperatorSnapshot, OperatorState
from unistream.model.state import MapStateDescriptor, StateDescriptor, check_declarations
from unistream.operator.common import Row, check_defined, check_returned_nothing, function_name
from unistream.operator.process.context import Collector, ProcessContext, SideSchemas, declarations
from unistream.operator.process.list_state import BroadcastMap
from unistream.operator.process.process import KeyedFunction, KeyedProcessOperator
from unistream.operator.process.timer_table import KeyedTimers
from unistream.operator.process.undo import Undo
from unistream.port.dead_letters import OnError
from unistream.port.state import NO_KEY, KeyedStateBackend

BROADCAST_INPUT: Final = 1


class BroadcastContext(ProcessContext):
    """The context of a `BroadcastProcessFunction`."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        event: KeyedTimers,
        processing: KeyedTimers,
        maps: dict[str, BroadcastMap],
        undo: Undo | None = None,
    ) -> None:
        super().__init__(backend, event, processing, undo)
        self._maps = maps

    def broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastMap:
        """The map, the same in every subtask. Only `process_broadcast_element` can change it. Raises
        ConfigError if it was not passed to `connect`."""
        found = self._maps.get(descriptor.name)
        if found is None:
            names = ", ".join(self._maps) or "none"
            raise ConfigError(f"{descriptor.name!r} is not broadcast state; broadcast states are: {names}")
        return found


class BroadcastProcessFunction(KeyedFunction["BroadcastContext"]):
    """Subclass it; override `process_element` and `process_broadcast_element`.

    >>> import pyarrow as pa, unistream as us
    >>> LIMITS = us.MapStateDescriptor("limits", pa.int64(), key_type=pa.string())
    >>> class AboveLimit(us.BroadcastProcessFunction):
    ...     def process_broadcast_element(self, row, context, out):
    ...         context.broadcast_state(LIMITS).put(row["kind"], row["limit"])
    ...     def process_element(self, row, context, out):
    ...         limit = context.broadcast_state(LIMITS).get(row["kind"])
    ...         if limit is not None and row["n"] > limit:
    ...             out.emit(row)
    """

    def process_broadcast_element(self, row: Row, context: BroadcastContext, out: Collector) -> None:
        """Processes a row of the broadcast stream. Every subtask gets the same rows, in the same order. There
        is no current key."""
        raise TypeError(f"{type(self).__name__} must define process_broadcast_element(row, context, out)")


class BroadcastProcessOperator(KeyedProcessOperator):
    """Runs a `BroadcastProcessFunction`.

    Args:
        states: The broadcast states.
        on_error: For rows of the keyed input. One of the broadcast input that fails, fails the job: every
            subtask has it, and all have to agree on their maps.
    """

    def __init__(
        self,
        function: BroadcastProcessFunction,
        keys: Sequence[str],
        states: Sequence[MapStateDescriptor],
        *,
        returns: pa.Schema | None = None,
        side_outputs: SideSchemas | None = None,
        key_schema: pa.Schema | None = None,
        on_error: OnError = "fail",
    ) -> None:
        check_defined(function, BroadcastProcessFunction, "process_broadcast_element")
        self._states = tuple(states)
        super().__init__(
            function,
            keys,
            returns=returns,
            side_outputs=side_outputs,
            key_schema=key_schema,
            on_error=on_error,
        )
        check_declarations(function_name(function), [*states, *declarations(function, StateDescriptor)])
        self._broadcast = function
        self._maps: dict[str, BroadcastMap] = {}

    def declared_states(self) -> tuple[StateDescriptor, ...]:
        broadcast = {descriptor.name for descriptor in self._states}
        return tuple(d for d in super().declared_states() if d.name not in broadcast)

    def declared_maps(self) -> tuple[MapStateDescriptor, ...]:
        """The broadcast states."""
        return self._states

    def process_batch(self, batch: Batch, input_index: int) -> None:
        if input_index == BROADCAST_INPUT:
            self._process_broadcast(batch)
        else:
            super().process_batch(batch, input_index)

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        keyed = super().snapshot_state(checkpoint_id)
        lists = {name: found.snapshot() for name, found in self._maps.items()}
        return OperatorSnapshot(state=keyed.state, timers=keyed.timers, lists=lists)

    def _make_context(self) -> ProcessContext:
        return BroadcastContext(self.backend, self._event, self._processing, self._maps, self._undo)

    def _restore(self, state: OperatorState) -> None:
        super()._restore(state)
        for descriptor in self._states:
            stored = state.lists.get(descriptor.name, ())
            self._maps[descriptor.name] = BroadcastMap(descriptor, stored)

    def _process_broadcast(self, batch: Batch) -> None:
        context, out = self._ready(), Collector(self._schemas)
        assert isinstance(context, BroadcastContext), "it is made above"
        process, position = self._broadcast.process_broadcast_element, 0
        context.rows_come(out.place, batch.timestamps)
        context.has_key, context.time_domain = False, None
        self.backend.set_current(NO_KEY)
        self._set_writable(True)
        try:
            for position, row in enumerate(row_values(batch.records)):
                out.place.position = position
                check_returned_nothing(process(row, context, out))
        except ConfigError:
            raise
        except Exception as error:
            raise self.user_error(self._what("process_broadcast_element"), error, position) from error
        finally:
            self._set_writable(False)
        self._emit(out, batch.timestamps)

    def _set_writable(self, writable: bool) -> None:
        for found in self._maps.values():
            found.writable = writable
