"""Planted bugs of state that is right behind aligned barriers only. The pipelines in which `simulate` has to
find them are in `tests/simulation/test_simulation_state.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import msgspec

from tests.support.mutants import Mutant
from tests.support.mutants_shared import Patch
from unistream.core.task import BarrierSettings
from unistream.model.snapshot import ListMode, OperatorListState
from unistream.operator.sink import Committables
from unistream.operator.window import FIRED, FIRED_TABLE, WindowAggregate

_ALL: Final = 1 << 62  # above all checkpoint ids


def fired_of_another() -> list[Patch]:
    """What has fired is a list of which each new subtask gets the copy of one former subtask."""
    original = WindowAggregate.snapshot_state

    def snapshot_state(self: Any, checkpoint_id: Any) -> Any:
        snapshot = original(self, checkpoint_id)
        table = snapshot.keyed.get(FIRED)
        if table is None:
            return snapshot
        keyed = {name: one for name, one in snapshot.keyed.items() if name != FIRED}
        copy = msgspec.msgpack.encode(max(table.column(FIRED_TABLE.columns[0]).to_pylist()))
        lists = {**snapshot.lists, FIRED: OperatorListState(ListMode.BROADCAST, (copy,))}
        return replace(snapshot, keyed=keyed, lists=lists)

    return [(WindowAggregate, "snapshot_state", snapshot_state)]


def lists_the_next() -> list[Patch]:
    """Barriers behind committables are aligned in no mode but EXACTLY_ONCE, and a snapshot lists all that has
    come."""
    original = BarrierSettings.handler

    def handler(self: Any, channels: int, **_: bool) -> Any:
        return original(self, channels)

    return [
        (BarrierSettings, "handler", handler),
        (Committables, "encoded", _all_encoded(Committables.encoded)),
        (Committables, "restore", _all_restored(Committables.restore)),
    ]


def _all_encoded(original: Any) -> Any:
    return lambda self, _up_to, *names: original(self, _ALL, *names)


def _all_restored(original: Any) -> Any:
    return lambda self, items, _up_to: original(self, items, _ALL)


MUTANTS: Final[dict[str, Mutant]] = {
    "fired-of-another": Mutant(
        "a rescaled window operator takes what another subtask has fired for its own", fired_of_another
    ),
    "lists-the-next": Mutant(
        "a snapshot of a sink lists what is staged for a later checkpoint", lists_the_next
    ),
}
