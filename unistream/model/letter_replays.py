"""A replay of dead letters that a cluster begins: what its JobManager asks a process of its own, which opens
the pipeline, and what that answers.

    JobManager                          the process
    question ───────────────────────►   opens the pipeline, cuts the job, records that the replay has begun
    submits ◄─────────── prepared ───
    looks at its jobs ◄────── open ──   an earlier replay of the table is not done
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from unistream.base.limits import ARTIFACT_BYTES_MAX, MIB
from unistream.model.letter_pages import LettersRefusal


class ReplayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one preparation.

    Attributes:
        memory_bytes: Of the process, which reads the table whole, and imports what the pipeline does.
        seconds: From its start to its end.
        file_bytes: Of the letters that are replayed, in one file.
        answer_bytes: Of the job that is cut.
    """

    memory_bytes: int = 2_048 * MIB
    seconds: int = 120
    file_bytes: int = 1_024 * MIB
    answer_bytes: int = ARTIFACT_BYTES_MAX + 16 * MIB


class Correction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The correction of one letter: its whole `row` as JSON, or of a source the value of its record,
    `raw`."""

    letter: str
    row: str | None = None
    raw: str | None = None


class ReplayQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Which letters of a table are replayed.

    Attributes:
        id: Of the replay: the trigger id of who has asked for it.
        operator, error_type: Only these; "": any. `letters`: only these, by the beginning of their ids.
        corrections: Then only these letters.
        cluster, mark: See `dead_letters.ledger.ReplayOrder`.
        pipeline: What the job was made of.
        store: Options of the store of the table; they may hold secrets, so they go by a pipe alone.
        finished: Earlier replays whose job has finished.
        idle: Earlier replays none of whose jobs runs, with the number of them.
    """

    id: str
    table: str
    operator: str = ""
    error_type: str = ""
    letters: tuple[str, ...] = ()
    corrections: tuple[Correction, ...] = ()
    from_empty_state: bool = False
    cluster: str
    mark: str
    pipeline: bytes
    limits: ReplayLimits
    store: dict[str, str] = {}
    finished: tuple[str, ...] = ()
    idle: dict[str, int] = {}


class ReplayPrepared(msgspec.Struct, frozen=True, kw_only=True, tag="prepared"):
    """It has begun, and is to be submitted.

    Attributes:
        replay: Its id; of an earlier one, with which it goes on (`goes_on`), another than was asked for.
        submission: msgpack of `SubmitRequest`.
        unread: How many more letters of a source are still no rows.
    """

    replay: str
    letters: int
    submission: bytes
    unread: int = 0
    goes_on: bool = False


class NothingToReplay(msgspec.Struct, frozen=True, kw_only=True, tag="nothing"):
    """There are no such letters, or all of them were replayed. `unread`: as above."""

    unread: int = 0


class ReplayOpen(msgspec.Struct, frozen=True, kw_only=True, tag="open"):
    """An earlier replay of this cluster is not done, and was not in the question."""

    replay: str


ReplayAnswer: TypeAlias = ReplayPrepared | NothingToReplay | ReplayOpen | LettersRefusal


def replay_request(replay: str, cluster: str, attempt: int) -> str:
    """The request id of a job of a replay, by which everybody finds it; the first attempt is 0."""
    return f"replay {replay} of {cluster}, {attempt}"
