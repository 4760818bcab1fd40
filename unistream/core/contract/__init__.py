"""Events, commands, settings, states and views of a job. Pure.

Decides nothing: it is the vocabulary of the rooms above. May import: `model`, `base`. Start with `messages`
(the events of a `JobMachine`) and `commands` (its output), then `status` (the states of a job and their
transitions).
"""

from __future__ import annotations

from unistream.core.contract.commands import (
    AnswerRequest,
    CancelRun,
    CancelTimer,
    Command,
    CommitStaged,
    DiscardSnapshot,
    DiscoverSplits,
    JobEnded,
    KeepStored,
    PrepareDirectory,
    RecordAttempt,
    RecordCheckpoint,
    RecordException,
    RecordGraph,
    RecordJobState,
    ReleaseSlots,
    RequestSlots,
    RunStages,
    Send,
    SetTimer,
    StoreCommitters,
    SweepSharedFiles,
    WriteManifest,
)
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
    TaskManagerDraining,
    TaskManagerLost,
    Timer,
    TimerFired,
    TimerKind,
    Undelivered,
)
from unistream.core.contract.outbox import CommandOutbox
from unistream.core.contract.settings import (
    FIRST_CHECKPOINT,
    AdaptiveSettings,
    ExternalizedCheckpointRetention,
    JobSettings,
    RestartBackoff,
    RestorePoint,
)
from unistream.core.contract.status import (
    JOB_LIFE,
    JOB_TRANSITIONS,
    AttemptView,
    JobCause,
    JobLog,
    JobState,
    JobView,
    job_steps,
)
from unistream.core.contract.story import StateLog
