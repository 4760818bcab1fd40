"""A backfill: results of a range of time are computed again and replaced, between a stop and a resume. Pure.

Decides: what is done next, also after a kill (`machine`), which rows of the history contribute to the range,
and up to which time a stream has finished its results (`reach`). May import: `model`. Start with `machine`.
"""

from __future__ import annotations

from unistream.core.backfill.machine import (
    TRANSITIONS,
    Abandoned,
    Attempted,
    BackfillEnded,
    BackfillPhase,
    BackfillProgress,
    Command,
    Event,
    Replaced,
    Resumed,
    Staged,
    StagedFile,
    Stopped,
    TableFenced,
    Verdict,
    applied,
    begun,
    next_command,
)
from unistream.core.backfill.reach import Reach, WindowGrid
