"""What people see of jobs that have ended, of workers and of the cluster; jobs that run are shown by `job`.

Decides what a record of the database, or a view of a machine, looks like for a client. May import: `core`,
`port`, `model`, `base`, and no other room. Start with `projection`.
"""

from __future__ import annotations

from unistream.master.shown.archive import archived
from unistream.master.shown.cluster_info import (
    ClusterInfo,
    ClusterPlaces,
    DiskOf,
    DiskShown,
    LeaderTerm,
    MetadataInfo,
    options_of,
    terms_of,
    versions,
    zookeeper_info,
)
from unistream.master.shown.ended_jobs import (
    EndedJobs,
    RecentPages,
    read_ended,
    read_listed,
    writer_elsewhere,
    written_by_both,
)
from unistream.master.shown.exceptions import defect_failure, exception_info, named_task
from unistream.master.shown.history import (
    RecordedJob,
    checkpoints_from_records,
    checkpoints_of,
    graph_of,
    info_of_result,
    log_of,
    recorded_info,
    summary_of,
)
from unistream.master.shown.past_jobs import JobsPage, history_place, search_past_jobs
from unistream.master.shown.projection import JobFacts, SnapshotRecords, job_info, job_summary, one_line
from unistream.master.shown.timeline import JobTimeline, timeline_of
from unistream.master.shown.workers_shown import JobInSlots, WorkerLog, WorkersInfo, worker_log, workers_info

__all__ = [
    "ClusterInfo",
    "ClusterPlaces",
    "DiskOf",
    "DiskShown",
    "EndedJobs",
    "JobFacts",
    "JobInSlots",
    "JobTimeline",
    "JobsPage",
    "LeaderTerm",
    "MetadataInfo",
    "RecentPages",
    "RecordedJob",
    "SnapshotRecords",
    "WorkerLog",
    "WorkersInfo",
    "archived",
    "checkpoints_from_records",
    "checkpoints_of",
    "defect_failure",
    "exception_info",
    "graph_of",
    "history_place",
    "info_of_result",
    "job_info",
    "job_summary",
    "log_of",
    "named_task",
    "one_line",
    "options_of",
    "read_ended",
    "read_listed",
    "recorded_info",
    "search_past_jobs",
    "summary_of",
    "terms_of",
    "timeline_of",
    "versions",
    "worker_log",
    "workers_info",
    "zookeeper_info",
]
