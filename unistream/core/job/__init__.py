"""How a job starts, restarts, rescales and ends. Pure; the top floor of `core`.

Decides: the life of a job (`machine` takes events, `life` moves the `parts` along the table of
`core.contract.status`), when it may start and how wide (`scheduling`: the default strategy; `adaptive`),
changes of parallelism (`rescaling`), the history of failures (`exception_history`), the outcomes of messages
(`deliveries`). May import every other room of `core`. Start with `machine`.
"""

from __future__ import annotations

from unistream.core.job.adaptive import why_not_adaptive
from unistream.core.job.bootstrap import BootstrapSavepoint
from unistream.core.job.bounded import BoundedJobMachine
from unistream.core.job.deliveries import LOSS_GRACE_MS, RELEASE_TRIES, Releases
from unistream.core.job.exception_history import (
    SUPPRESSED_KIND,
    AttemptsHistory,
    ExceptionEntry,
    ExceptionHistory,
    PastAttempt,
    RootException,
    task_name,
)
from unistream.core.job.machine import JobMachine
from unistream.core.job.rescaling import CHANGES, RescaleState
from unistream.core.job.scaling import check_widths, fit, vertices_named, with_parallelism
from unistream.core.job.settings import job_settings
from unistream.core.job.suspension import abandonment
