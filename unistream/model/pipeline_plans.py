"""A pipeline that a cluster plans: what its JobManager asks a process of its own, which opens its code.

JobManager                          the process
question ───────────────────────►   imports the module, calls the function, compares states
keeps it, to be started ◄─ planned
answers with the reason ◄─ refused
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from unistream.base.limits import MIB
from unistream.base.secrets import redacted_repr


class PlanLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one plan.

    Attributes:
        seconds: From the start of its process to its end.
        memory_bytes: Of the process.
        file_bytes: Of a file that it writes.
        answer_bytes: Of the job that it makes.
    """

    seconds: int = 60
    memory_bytes: int = 2_048 * MIB
    file_bytes: int = 256 * MIB
    answer_bytes: int = 64 * MIB


class PlanQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Which pipeline, and how.

    Attributes:
        entry_point: MODULE:FUNCTION.
        folder: From which its modules are imported, besides what is installed.
        parameters: Keyword arguments of the function.
        name: Of the job; None: as the pipeline says.
        config: Options of the job.
        savepoint: Where it would begin. `recovery`: options of the cluster that say what may.
        store: Options of the store of the savepoint; they may hold secrets, so they go by a pipe alone.
    """

    entry_point: str
    folder: str
    parameters: dict[str, Any] = {}
    name: str | None = None
    config: dict[str, str] = {}
    savepoint: str | None = None
    allow_non_restored: bool = False
    recovery: dict[str, str] = {}
    store: dict[str, str] = {}
    limits: PlanLimits

    __repr__ = redacted_repr


class PipelinePlanned(msgspec.Struct, frozen=True, kw_only=True, tag="planned"):
    """It could be started.

    Attributes:
        explained: What it becomes, as `unistream explain --json` says it: JSON.
        states: What happens to the states of the savepoint (`core.restore.RestorePlan`), as JSON; empty: it
            starts without one.
        advice: What its user should know before.
        submission: msgpack of `SubmitRequest`.
    """

    explained: bytes
    states: bytes
    advice: tuple[str, ...]
    submission: bytes


class PlanRefused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """It could not.

    Attributes:
        why: In one sentence.
        frames: The traceback of the user's own code; empty: the reason is not in it.
        is_away: Something does not answer now.
    """

    why: str
    frames: str = ""
    is_away: bool = False


PlanAnswer: TypeAlias = PipelinePlanned | PlanRefused
