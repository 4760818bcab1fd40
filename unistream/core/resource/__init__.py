"""Who gets which slot. Pure.

Decides: which worker serves a slot request (`machine`, one for each cluster), which slot takes which
subtasks (`slot_pool`, one for each job), which hosts are avoided (`workers`), when a worker that is drained
ends (`draining`). May import: `core.contract`,
`core.memory`. Start with `messages`, then `machine`.
"""

from __future__ import annotations

from unistream.core.resource.draining import DRAINED
from unistream.core.resource.machine import ResourceMachine
from unistream.core.resource.messages import (
    AnnounceLoss,
    BlockedHost,
    DrainWanted,
    GrantSlots,
    JobResourceEvent,
    MoveTasks,
    ProbeOutcome,
    ProbeWorker,
    RefuseDrain,
    RefuseSlots,
    ResourceCommand,
    ResourceEvent,
    SlotsReturned,
    SlotsWanted,
    SlotView,
    StartWorker,
    StopWorker,
    Tick,
    WorkerEnded,
    WorkerHeartbeat,
    WorkerProbed,
    WorkerRegistered,
    WorkerView,
)
from unistream.core.resource.slot_division import Slice, SlotKind, Unit, divide, without_slot
from unistream.core.resource.slot_matching import describe, missing_slots_text, profile_for, serves
from unistream.core.resource.slot_pool import SlotPool
from unistream.core.resource.workers import BlockRules, HeartbeatTerms, ResourceRules, heartbeat_terms
