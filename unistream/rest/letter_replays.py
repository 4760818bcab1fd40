"""Replays of dead letters that the web UI begins.

POST  /unistream/jobs/ID/dead-letters/replays             {"table": …, "corrections": […], "triggerId": …}
GET   /unistream/jobs/ID/dead-letters/replays/TRIGGER     how far it is, and its job

A process of its own opens what the job was made of, and cuts the job of the replay
(`dead_letters.clustered`); this one submits that, as any other. The trigger id is the id of the replay, and
names its jobs: so it is found again under a later leader, and sent again it is the same replay.
"""

from __future__ import annotations

import logging
import signal
import threading
from concurrent.futures import Future
from itertools import count
from typing import Final

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import structs
from starlette.concurrency import run_in_threadpool

from unistream.base import process_mark
from unistream.base.bounded_process import BoundedProcess, Said
from unistream.base.errors import (
    UNDECODABLE,
    AlreadyEnded,
    ConfigError,
    NotFound,
    Transient,
    UnistreamError,
    Unreachable,
)
from unistream.base.ids import JobId, job_of_request
from unistream.base.object_stores import store_options
from unistream.core.memory import describe_bytes
from unistream.master.cluster import Dispatcher
from unistream.model.job_info import JobInfo
from unistream.model.letter_pages import LettersRefusal
from unistream.model.letter_replays import (
    Correction,
    NothingToReplay,
    ReplayAnswer,
    ReplayLimits,
    ReplayOpen,
    ReplayPrepared,
    ReplayQuestion,
    replay_request,
)
from unistream.model.submission import SubmitRequest
from unistream.rest.answers import json_answer
from unistream.rest.letter_tables import LetterTables, checked_word
from unistream.rest.requests import body_of, chosen_trigger, job_id, trigger_id
from unistream.rest.shapes import OperationState
from unistream.rest.triggers import Triggers

MODULE: Final = "unistream.dead_letters.replay_process"
WHAT: Final = "replay"
NOTED: Final = "unistream-replayed"
"""Uid of the sink in which the job of a replay notes its letters (`dead_letters.graph`)."""

OPEN_MAX: Final = 100  # earlier replays of a table that are not done: each costs a start of the process
LETTERS_MAX: Final = 10_000  # of one request
NO_PIPELINE: Final = (
    "what the job was made of is not kept here: its client did not send it, or it has ended long ago. "
    "`unistream dead-letters replay` replays letters where the code of the pipeline is"
)

logger = logging.getLogger(__name__)


class ReplayBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Which letters of `table`, the URI of what a sink of the job writes.

    Attributes:
        operator, error: Only these; "": any.
        letters: Only these, by id; none: all that were not replayed.
        corrections: Then only these letters, with what is in them.
        from_empty_state: Also through operators with state, which begin empty.
    """

    table: str
    operator: str = ""
    error: str = ""
    letters: tuple[str, ...] = ()
    corrections: tuple[Correction, ...] = ()
    from_empty_state: bool = False
    trigger_id: str | None = None


class ReplayShown(msgspec.Struct, frozen=True, kw_only=True):
    """What has come of a replay.

    Attributes:
        job, state: Its job; null: there was nothing to replay.
        letters: That were replayed so far; null: not known.
        failed_again: Of those, how many are letters again; null: the job has not ended.
        unread: How many more letters of a source are still no rows; null: the leader that began it is gone.
        goes_on: It is an earlier replay that was cut off, and not what was asked for. Ask again for that.
        failure: Why its job has failed.
    """

    job: JobId | None
    state: str | None
    letters: int | None
    failed_again: int | None
    unread: int | None
    goes_on: bool
    failure: str | None


class ReplayOperation(msgspec.Struct, frozen=True, kw_only=True):
    """`operation` null: its job is being made."""

    status: OperationState
    operation: ReplayShown | None


class _Begun(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a trigger. `request` None: there was nothing to replay."""

    request: str | None
    unread: int
    goes_on: bool = False


class LetterReplaysApi:
    """The handlers that begin a replay and say how far it is."""

    def __init__(self, dispatcher: Dispatcher, triggers: Triggers) -> None:
        self._dispatcher = dispatcher
        self._triggers = triggers
        self._tables = LetterTables(dispatcher)
        self._limits = ReplayLimits()
        self._one = threading.Lock()
        """Held from the question to the submission: else a second replay would take a job that is about to be
        submitted for one that never will be."""

    def routes(self, router: APIRouter) -> None:
        router.post("/unistream/jobs/{id_}/dead-letters/replays")(self.replay)
        router.get("/unistream/jobs/{id_}/dead-letters/replays/{trigger}")(self.status)

    async def replay(self, id_: str, request: Request) -> Response:
        body = await body_of(request, ReplayBody)
        return await run_in_threadpool(self._replay, job_id(id_), body)

    def _replay(self, job: JobId, body: ReplayBody) -> Response:
        trigger = chosen_trigger(body.trigger_id)
        if trigger is not None and self._newest(trigger) is not None:
            return json_answer({"request-id": trigger}, 202)  # under an earlier leader, say
        question = self._question(job, body)
        begin = lambda chosen: self._in_background(job, structs.replace(question, id=chosen))  # noqa: E731
        asked = structs.replace(body, trigger_id=None)
        started = self._triggers.start(job, begin, what=WHAT, trigger=trigger, request=asked)
        return json_answer({"request-id": started}, 202)

    def _question(self, job: JobId, body: ReplayBody) -> ReplayQuestion:
        table = self._tables.checked(job, body.table)
        if len(body.letters) + len(body.corrections) > LETTERS_MAX:
            raise ConfigError(f"at most {LETTERS_MAX:,} letters are named in one request")
        pipeline = self._dispatcher.pipeline(job)
        if pipeline is None:
            raise ConfigError(NO_PIPELINE)
        lasts = self._dispatcher.outlives_master
        return ReplayQuestion(
            id="",
            table=table,
            operator=checked_word("operator", body.operator),
            error_type=checked_word("error", body.error),
            letters=body.letters,
            corrections=body.corrections,
            from_empty_state=body.from_empty_state,
            cluster=self._dispatcher.cluster,
            mark="" if lasts else process_mark.own(),
            pipeline=pipeline,
            limits=self._limits,
            store=store_options(self._dispatcher.config),
        )

    # --- one replay -------------------------------------------------------------------------------

    def _in_background(self, job: JobId, question: ReplayQuestion) -> Future[str]:
        answer: Future[str] = Future()

        def run() -> None:
            try:
                begun = self._begun(job, question)
                answer.set_result(msgspec.json.encode(begun).decode())
            except Transient as error:  # it is over all the same; who watches it would wait for ever
                answer.set_exception(ConfigError(f"{error}; replay them again: no letter is replayed twice"))
            except UnistreamError as error:
                answer.set_exception(error)
            except BaseException as error:
                logger.exception("event=replay_defect job=%s", job)
                answer.set_exception(ConfigError(f"it has failed: {type(error).__name__}"))

        threading.Thread(target=run, name=f"replay-{question.id[:8]}", daemon=True).start()
        return answer

    def _begun(self, job: JobId, question: ReplayQuestion) -> _Begun:
        with self._one:
            found = self._prepared(question)
            if isinstance(found, NothingToReplay):
                return _Begun(request=None, unread=found.unread)
            submission = msgspec.msgpack.decode(found.submission, type=SubmitRequest)
            of_replay = self._dispatcher.submit(submission)
        logger.info("event=letters_replayed job=%s replay=%s of_replay=%s", job, found.replay, of_replay)
        return _Begun(request=submission.request_id, unread=found.unread, goes_on=found.goes_on)

    def _prepared(self, question: ReplayQuestion) -> ReplayPrepared | NothingToReplay:
        for _ in range(OPEN_MAX):
            answer = self._asked(question)
            if not isinstance(answer, ReplayOpen):
                return answer
            attempts, newest = self._attempts(answer.replay)
            if newest is None or newest.state in ("FAILED", "CANCELED"):
                question = structs.replace(question, idle={**question.idle, answer.replay: attempts})
            elif newest.state == "FINISHED":
                question = structs.replace(question, finished=(*question.finished, answer.replay))
            else:
                raise AlreadyEnded(
                    f"letters of this table are being replayed by job {newest.job} ({newest.state}): wait "
                    "for its end, or cancel it"
                )
        raise ConfigError(f"more than {OPEN_MAX} replays of this table are not done")

    def _attempts(self, replay: str) -> tuple[int, JobInfo | None]:
        """How many jobs of a replay there were, and the newest one. Raises Unreachable: that is not known."""
        newest: JobInfo | None = None
        for attempt in count():
            try:
                newest = self._dispatcher.job(self._job_of(replay_request(replay, self._cluster, attempt)))
            except NotFound:
                return attempt, newest
        raise AssertionError("there is no end of numbers")

    def _newest(self, replay: str) -> JobInfo | None:
        return self._attempts(replay)[1]

    @property
    def _cluster(self) -> str:
        return self._dispatcher.cluster

    def _job_of(self, request: str) -> JobId:
        return job_of_request(request)

    def _asked(self, question: ReplayQuestion) -> ReplayPrepared | NothingToReplay | ReplayOpen:
        process = BoundedProcess(MODULE, seconds=self._limits.seconds, answer_bytes=self._limits.answer_bytes)
        said = process.ask(lambda: msgspec.msgpack.encode(question))
        if said.stopped:
            raise (ConfigError if said.late else Transient)(f"the replay was stopped: {said.stopped}")
        try:
            answer: ReplayAnswer = msgspec.msgpack.decode(said.answer or b"", type=ReplayAnswer)
        except UNDECODABLE:
            raise ConfigError(self._why_it_ended(said)) from None
        if isinstance(answer, LettersRefusal):
            raise (Unreachable if answer.is_away else ConfigError)(answer.why)
        return answer

    def _why_it_ended(self, said: Said) -> str:
        if said.code == -signal.SIGXCPU:
            return f"the replay was stopped before it had begun: it takes more than {self._limits.seconds} s"
        most = describe_bytes(self._limits.memory_bytes)
        return (
            "the process that begins the replay ended without an answer: most likely the pipeline or the "
            f"table takes more than {most} of memory; `unistream dead-letters replay` has no limit"
        )

    # --- how far it is ----------------------------------------------------------------------------

    async def status(self, id_: str, trigger: str) -> Response:
        return json_answer(await run_in_threadpool(self._status, job_id(id_), trigger_id(trigger)))

    def _status(self, job: JobId, trigger: str) -> ReplayOperation:
        try:
            outcome = self._triggers.outcome(job, trigger, WHAT)
        except NotFound:
            newest = self._newest(trigger)
            if newest is None:
                raise
            return _shown(newest, None, goes_on=False)
        if outcome is None:
            return ReplayOperation(status={"id": "IN_PROGRESS"}, operation=None)
        begun = msgspec.json.decode(outcome, type=_Begun)
        if begun.request is None:
            return _nothing(begun.unread)
        info = self._dispatcher.job(self._job_of(begun.request))
        return _shown(info, begun.unread, goes_on=begun.goes_on)


def _nothing(unread: int) -> ReplayOperation:
    shown = ReplayShown(
        job=None, state=None, letters=0, failed_again=0, unread=unread, goes_on=False, failure=None
    )
    return ReplayOperation(status={"id": "COMPLETED"}, operation=shown)


def _shown(info: JobInfo, unread: int | None, *, goes_on: bool) -> ReplayOperation:
    noted = info.sinks.get(NOTED)
    shown = ReplayShown(
        job=info.job,
        state=info.state,
        letters=None if noted is None else noted.rows,
        failed_again=sum(info.dead_letters.values()) if info.is_terminal and not info.incomplete else None,
        unread=unread,
        goes_on=goes_on,
        failure=None if info.failure is None else info.failure.message,
    )
    return ReplayOperation(status={"id": "COMPLETED" if info.is_terminal else "IN_PROGRESS"}, operation=shown)
