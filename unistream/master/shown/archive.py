"""What the pages of a job showed when it ended, as one JSON document: bounded, with a format that grows.

Flink's history server stores the answers of its REST API by path. Here every page is made of the same few
views, so these are stored, and an ended job's pages are made as a running one's are. The graph with the
configuration (without secrets) is a column of the job already.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from unistream.base.errors import UNDECODABLE
from unistream.base.limits import KIB, MIB
from unistream.model.checkpoint_figures import CheckpointFigures, CheckpointsInfo
from unistream.model.job_info import ExceptionInfo, JobInfo
from unistream.model.job_log_line import JobLogLine
from unistream.port.metadata import ArchiveRecord

FORMAT: Final = 1
CONTENT_BYTES_MAX: Final = MIB  # a job of 1,000 tasks has 600 KiB; a page of it is decoded in 10 ms
LOG_BYTES_MAX: Final = 256 * KIB  # of the newest lines; nobody looks for a thousand tracebacks
TEXT_CHARS_MAX: Final = 2 * KIB  # of each message and traceback, where there is too much

LINE_BYTES: Final = 200  # what a line has besides its message

logger = logging.getLogger(__name__)


class ArchivedJob(msgspec.Struct, frozen=True, kw_only=True):
    """The document. Fields that a later format adds have defaults."""

    info: JobInfo
    checkpoints: CheckpointsInfo
    log: tuple[JobLogLine, ...] = ()


def archived(info: JobInfo, checkpoints: CheckpointsInfo, log: Sequence[JobLogLine] = ()) -> ArchiveRecord:
    """The archive of a job that has ended. What does not fit is left out, and `JobInfo.incomplete` says what;
    of the log, which has the newest lines alone anyhow, nothing is said."""
    assert info.ended_ms is not None
    info_kept = replace(info, task_managers=(), engine_page=None)  # Spark ends, too
    document = ArchivedJob(info=info_kept, checkpoints=checkpoints, log=_newest(log))
    content, left_out = _encode(document), list[str]()
    for what, reduce in _REDUCTIONS:
        if len(content) <= CONTENT_BYTES_MAX:
            break
        reduced = reduce(document)
        left_out += [what] if reduced is not document else []
        document = reduced
        content = _encode(_with_note(document, left_out))
    return ArchiveRecord(
        job=info.job,
        format=FORMAT,
        ended_ms=info.ended_ms,
        tasks=dict(Counter(subtask.state for subtask in info.subtasks)),
        content=content.decode(),
    )


def restored(record: ArchiveRecord | None, ended_ms: int | None) -> ArchivedJob | None:
    """The document; None: there is none that this version reads, or it is not of that end of the job."""
    if record is None or record.ended_ms != ended_ms:
        return None
    try:
        if record.format <= FORMAT:
            return msgspec.json.decode(record.content, type=ArchivedJob)
        reason = f"it has format {record.format}, this version reads {FORMAT}"
    except UNDECODABLE as error:
        reason = str(error)
    logger.warning("event=archive_not_read job=%s reason=%r", record.job, reason)
    return None


def _newest(log: Sequence[JobLogLine]) -> tuple[JobLogLine, ...]:
    """The lines for which there is room."""
    left, kept = LOG_BYTES_MAX, list[JobLogLine]()
    for line in reversed(log):
        left -= len(line.message) + LINE_BYTES
        if left < 0:
            break
        kept.append(line)
    return tuple(reversed(kept))


def _encode(document: ArchivedJob) -> bytes:
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:  # a lone surrogate in a message of a user
        plain = msgspec.to_builtins(document)
        return msgspec.json.encode(_encodable(plain))


def _encodable(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {_encodable(name): _encodable(one) for name, one in value.items()}
        case list() | tuple():
            return [_encodable(one) for one in value]
    return value


def _with_note(document: ArchivedJob, left_out: list[str]) -> ArchivedJob:
    note = f"its archive was too large and lacks {', '.join(left_out)}"
    return replace(document, info=replace(document.info, incomplete=note))


# --- what is left out first -----------------------------------------------------------------------


def _without_log(document: ArchivedJob) -> ArchivedJob:
    return replace(document, log=()) if document.log else document


def _without_tasks_of_checkpoints(document: ArchivedJob) -> ArchivedJob:
    def short(figures: CheckpointFigures) -> CheckpointFigures:
        return replace(figures, vertices=(), recorded_bytes=figures.state_bytes, reason=_cut(figures.reason))

    def short_or_none(figures: CheckpointFigures | None) -> CheckpointFigures | None:
        return None if figures is None else short(figures)

    known = document.checkpoints
    return replace(
        document,
        checkpoints=replace(
            known,
            latest=tuple(map(short, known.latest)),
            latest_completed=short_or_none(known.latest_completed),
            latest_savepoint=short_or_none(known.latest_savepoint),
            latest_failed=short_or_none(known.latest_failed),
        ),
    )


def _without_former_attempts(document: ArchivedJob) -> ArchivedJob:
    subtasks = tuple(replace(subtask, past=()) for subtask in document.info.subtasks)
    return replace(document, info=replace(document.info, subtasks=subtasks))


def _with_short_texts(document: ArchivedJob) -> ArchivedJob:
    def short(one: ExceptionInfo) -> ExceptionInfo:
        return replace(
            one,
            message=one.message[:TEXT_CHARS_MAX],
            traceback=one.traceback[-TEXT_CHARS_MAX:],
            concurrent=(),
        )

    info = document.info
    failure = info.failure
    if failure is not None:
        failure = replace(
            failure,
            message=failure.message[:TEXT_CHARS_MAX],
            traceback=failure.traceback[-TEXT_CHARS_MAX:],
        )
    return replace(
        document, info=replace(info, exceptions=tuple(map(short, info.exceptions)), failure=failure)
    )


def _with_fewer_subtasks(document: ArchivedJob) -> ArchivedJob:
    while document.info.subtasks and len(_encode(document)) > CONTENT_BYTES_MAX - TEXT_CHARS_MAX:
        half = document.info.subtasks[: len(document.info.subtasks) // 2]
        shown = {subtask.vertex for subtask in half}
        vertices = tuple(vertex for vertex in document.info.vertices if vertex.id in shown)
        document = replace(document, info=replace(document.info, subtasks=half, vertices=vertices))
    return document


def _with_facts_only(document: ArchivedJob) -> ArchivedJob:
    info = document.info
    facts = JobInfo(
        job=info.job,
        name=info.name[:TEXT_CHARS_MAX],
        lineage=info.lineage,
        state=info.state,
        target=info.target,
        submitted_ms=info.submitted_ms,
        job_type=info.job_type,
        engine=info.engine,
        ended_ms=info.ended_ms,
        restarts=info.restarts,
        checkpoints_completed=info.checkpoints_completed,
        checkpoints_failed=info.checkpoints_failed,
        latest_checkpoint=_cut(info.latest_checkpoint),
        savepoint=_cut(info.savepoint),
        resumes_from=_cut(info.resumes_from),
        failure=info.failure,
    )
    known = document.checkpoints
    counts = CheckpointsInfo(
        completed=known.completed,
        failed=known.failed,
        in_progress=known.in_progress,
        restored=known.restored,
    )
    return ArchivedJob(info=facts, checkpoints=counts)


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:TEXT_CHARS_MAX]


_REDUCTIONS: Final[tuple[tuple[str, Callable[[ArchivedJob], ArchivedJob]], ...]] = (
    ("what its functions have logged", _without_log),
    ("tasks of checkpoints", _without_tasks_of_checkpoints),
    ("former attempts", _without_former_attempts),
    ("the rest of long messages", _with_short_texts),
    ("a part of the subtasks", _with_fewer_subtasks),
    ("all but the facts", _with_facts_only),
)
