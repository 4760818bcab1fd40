"""GET /unistream/jobs/{id_}/dead-letters: rows that failed, from a table that the job's sinks write.

A process of its own reads the table, with limits. No table is read that no sink of the job names.
"""

from __future__ import annotations

import signal
import threading
from typing import Final

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import structs
from starlette.concurrency import run_in_threadpool

from unistream.base.bounded_process import BoundedProcess, Said
from unistream.base.errors import UNDECODABLE, ConfigError, Transient, Unreachable
from unistream.base.ids import JobId
from unistream.base.limits import MIB
from unistream.base.object_stores import store_options
from unistream.core.memory import describe_bytes
from unistream.master.cluster import Dispatcher
from unistream.model.letter_pages import LetterLimits, LettersPage, LettersQuestion, LettersRefusal
from unistream.rest.answers import json_answer
from unistream.rest.letter_replays import NO_PIPELINE
from unistream.rest.letter_tables import LetterTables, checked_word
from unistream.rest.requests import job_id
from unistream.rest.while_connected import while_connected

MODULE: Final = "unistream.dead_letters.reading_process"
AT_ONCE_MAX: Final = 2
PLACES: Final = threading.BoundedSemaphore(AT_ONCE_MAX)
ANSWER_SLACK_BYTES: Final = 2 * MIB  # of JSON, over the texts


class DeadLettersApi:
    """The handler of rows that failed."""

    def __init__(self, dispatcher: Dispatcher, limits: LetterLimits | None = None) -> None:
        self._dispatcher = dispatcher
        self._tables = LetterTables(dispatcher)
        self._limits = limits or LetterLimits()

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/jobs/{id_}/dead-letters")(self.letters)

    async def letters(self, id_: str, request: Request) -> Response:
        """A `LettersPage` of `table`, the URI of what a sink writes; of `operator` and `error`, if given."""
        question = await run_in_threadpool(self._question, job_id(id_), request)
        if not PLACES.acquire(blocking=False):
            raise Transient(f"{AT_ONCE_MAX} tables of letters are read already, and no more are at once")
        try:
            most = self._limits.answer_bytes * 2 + ANSWER_SLACK_BYTES
            process = BoundedProcess(MODULE, seconds=self._limits.seconds, answer_bytes=most)
            encoded = msgspec.json.encode(question)
            said = await while_connected(request, lambda: process.ask(lambda: encoded), process.stop)
        finally:
            PLACES.release()
        page = self._understood(said)
        kept = await run_in_threadpool(self._dispatcher.has_pipeline, job_id(id_))
        return json_answer(structs.replace(page, no_replay=None if kept else NO_PIPELINE))

    def _question(self, job: JobId, request: Request) -> LettersQuestion:
        table = self._tables.checked(job, request.query_params.get("table", ""))
        return LettersQuestion(
            table=table,
            operator=checked_word("operator", request.query_params.get("operator", "")),
            error_type=checked_word("error", request.query_params.get("error", "")),
            limits=self._limits,
            store=store_options(self._dispatcher.config),
        )

    def _understood(self, said: Said) -> LettersPage:
        if said.stopped:
            raise (ConfigError if said.late else Transient)(
                f"the look at the table was stopped: {said.stopped}"
            )
        try:
            answer = msgspec.json.decode(said.answer or b"", type=LettersPage | LettersRefusal)
        except UNDECODABLE:
            raise ConfigError(self._why_it_ended(said)) from None
        if isinstance(answer, LettersRefusal):
            raise (Unreachable if answer.is_away else ConfigError)(answer.why)
        return answer

    def _why_it_ended(self, said: Said) -> str:
        if said.code == -signal.SIGXCPU:
            return f"the look at the table was stopped: it takes more than {self._limits.seconds} s"
        most = describe_bytes(self._limits.memory_bytes)
        return (
            "the process that looks at the table ended without an answer: most likely it takes more than "
            f"{most} of memory; `unistream dead-letters show` has no limit"
        )
