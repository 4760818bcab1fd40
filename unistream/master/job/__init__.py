"""One job under its master: the shell around the job's machine, and what outlives it.

Decides nothing that concerns tasks: `job_master` takes events from its mailbox, asks the machine and performs
its commands. `job_setup` checks what was submitted; `durable_job` and `durable_requests` keep what a later
leader needs; `journal` and `live` make of events what people see; `conclusion` ends it. May import `service`,
`shown`, `store`, `loop`, `core`, `port`, `model`, `base`. Start with `job_master`.
"""

from __future__ import annotations

from unistream.master.job.durable_job import discard_of
from unistream.master.job.durable_requests import stop_of
from unistream.master.job.job_io import remove_snapshot
from unistream.master.job.job_master import JobMaster
from unistream.master.job.job_setup import JobSetup, Origin, check_alone, prepare, restore_point
from unistream.master.job.live import scheduler_of, widths

__all__ = [
    "JobMaster",
    "JobSetup",
    "Origin",
    "check_alone",
    "discard_of",
    "prepare",
    "remove_snapshot",
    "restore_point",
    "scheduler_of",
    "stop_of",
    "widths",
]
