"""The master of a cluster: takes jobs, starts those of an earlier leader again, and owns what they share.

Decides which job exists and whether a request is accepted; what a job does is decided by its machine. May
import the rooms below (`job`, `service`, `shown`, `store`, `loop`), `core`, `port`, `model`, `base`. Start
with `dispatcher`.
"""

from __future__ import annotations

from unistream.master.cluster.dispatcher import Dispatcher
from unistream.master.cluster.job_views import counts_of

__all__ = [
    "Dispatcher",
    "counts_of",
]
