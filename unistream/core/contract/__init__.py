"""What goes into a job and comes out of it: messages, settings, states and views. Pure.

Decides nothing: it is the vocabulary of the rooms above (events in, commands out, the table of a job's
states). May import: `model`, `base`. Start with `messages` (what a `JobMachine` is fed) and
`commands` (what it asks for), then `status` (the states of a job and the table of what moves it).
"""

from __future__ import annotations

from unistream.core.contract.commands import (
    AnswerRequest,
    CancelTimer,
    Command,
    DiscardSnapshot,
    DiscoverSplits,
    JobEnded,
    PrepareDirectory,
    RecordAttempt,
    RecordCheckpoint,
    RecordException,
    RecordGraph,
    RecordJobState,
    ReleaseSlots,
    RequestSlots,
    Send,
    SetTimer,
    Sweep,
    WriteManifest,
)
from unistream.core.contract.failure_reason import FailureReason
from unistream.core.contract.messages import (
    CancelRequested,
    Delivered,
    DirectoryFailed,
    DirectoryReady,
    DiscoveryFailed,
    Event,
    LeadershipLost,
    ManifestDurable,
    ManifestFailed,
    RescaleRequested,
    SlotLease,
    SlotRequest,
    SlotsGranted,
    SlotsUnfulfillable,
    SnapshotRequest,
    SplitsDiscovered,
    Started,
    SuspendRequested,
    TaskManagerLost,
    Timer,
    TimerFired,
    TimerKind,
    Undelivered,
)
from unistream.core.contract.outbox import Outbox
from unistream.core.contract.settings import (
    FIRST_CHECKPOINT,
    AdaptiveSettings,
    JobSettings,
    RestartBackoff,
    RestorePoint,
    Retention,
)
from unistream.core.contract.status import (
    JOB_LIFE,
    JOB_TRANSITIONS,
    JobCause,
    JobLog,
    JobState,
    JobStatus,
    job_steps,
)
from unistream.core.contract.story import StateLog
from unistream.core.contract.view import AttemptView, JobView
