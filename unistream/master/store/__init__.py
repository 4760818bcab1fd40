"""What the next leader finds: jobs, their snapshots, what clients have requested; and whether this one leads.

Decides where a job restarts from (`restart_point`) and that a write is tried until it is taken
(`until_written`). May import: `loop`, `core`, `port`, `model`, `base`. Start with `job_store`.
"""

from __future__ import annotations

from unistream.master.store.job_store import JobStore, SnapshotPointers, place_of
from unistream.master.store.leadership import Leadership
from unistream.master.store.operations import (
    Operations,
    Request,
    RescaleAsked,
    TriggeredOperation,
    begun,
    digest_of_widths,
    find_operation,
    operation_of,
    request_of,
    settled,
    taken_over,
)
from unistream.master.store.procedures import StampedProcedures
from unistream.master.store.restart_point import first_free_checkpoint, newest_restart_point, remove_unpointed
from unistream.master.store.run_links import StampedLinks
from unistream.master.store.token_store import TokenStore
from unistream.master.store.until_written import UntilWritten

__all__ = [
    "JobStore",
    "Leadership",
    "Operations",
    "Request",
    "RescaleAsked",
    "SnapshotPointers",
    "StampedLinks",
    "StampedProcedures",
    "TokenStore",
    "TriggeredOperation",
    "UntilWritten",
    "begun",
    "digest_of_widths",
    "find_operation",
    "first_free_checkpoint",
    "newest_restart_point",
    "operation_of",
    "place_of",
    "remove_unpointed",
    "request_of",
    "settled",
    "taken_over",
]
