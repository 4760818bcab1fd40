"""Pipelines that the cluster plans and starts by itself: the page *Submit* of the web UI.

GET   /unistream/plans             whether it does, and from where it imports
POST  /unistream/plans             {"entryPoint": "flights.pipeline:build", "parameters": {…}, …}
POST  /unistream/plans/ID/start    the job of that plan, as it was shown; sent again it is the same one

This process opens nothing of a user: a process of its own imports the module (`unistream.planning`), with
limits, without the variables of this one, and in a folder that is removed. What it has made is kept here in
memory, for who has asked for it, until it is started or too old: so what runs is what was looked at.
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import structs
from starlette.concurrency import run_in_threadpool

from unistream.base.bounded_process import BoundedProcess, Said, scrubbed
from unistream.base.config import PARALLELISM, WEB_SUBMIT_ENABLE
from unistream.base.errors import UNDECODABLE, ConfigError, Forbidden, NotFound, Transient, Unreachable
from unistream.base.limits import MIB
from unistream.base.object_stores import store_options
from unistream.core.access import Identity
from unistream.core.memory import describe_bytes
from unistream.core.restore import OperatorPlan
from unistream.master.cluster import Dispatcher
from unistream.model.pipeline_plans import PipelinePlanned, PlanAnswer, PlanLimits, PlanQuestion, PlanRefused
from unistream.model.submission import SubmitRequest
from unistream.rest.allowed_paths import AllowedPaths
from unistream.rest.answers import json_answer
from unistream.rest.authorized import identity_of
from unistream.rest.requests import body_of, target, trigger_id
from unistream.rest.while_connected import while_connected

MODULE: Final = "unistream.planning.process"
AT_ONCE_MAX: Final = 2
PLACES: Final = threading.BoundedSemaphore(AT_ONCE_MAX)
"""The pipelines that this process has planned at once."""

KEPT_MAX: Final = 16  # plans that nobody has started
KEPT_BYTES_MAX: Final = 128 * MIB
LASTS_MS: Final = 30 * 60_000
ENTRY_POINT_CHARS_MAX: Final = 500
RECOVERY: Final = "execution.state-recovery."
FOLDER: Final = os.getcwd()
"""The folder in which this process was started: `unistream run` would import from there, too."""

NowMs = Callable[[], int]

logger = logging.getLogger(__name__)


class PlanBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Which pipeline, and how.

    Attributes:
        entry_point: MODULE:FUNCTION, as of `unistream run`.
        parameters: Keyword arguments of the function, besides the environment.
        parallelism: Of operators that set none; none: that of the cluster.
        name: Of the job; none: as the pipeline says.
        savepoint: Directory of a savepoint or checkpoint to start from.
        config: Options of the job.
    """

    entry_point: str
    parameters: dict[str, Any] = {}
    parallelism: int | None = None
    name: str | None = None
    savepoint: str | None = None
    allow_non_restored: bool = False
    config: dict[str, str] = {}


class PlanningShown(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the cluster plans pipelines. `folder`: from which it imports their modules, besides what is
    installed there."""

    enabled: bool
    folder: str
    limits: PlanLimits


class StatesPlanned(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to the states of a savepoint. `problems`: why the job would not start from it."""

    refused: bool
    operators: tuple[OperatorPlan, ...] = ()
    problems: tuple[str, ...] = ()


class PlanShown(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a pipeline becomes.

    Attributes:
        id: By which it is started; null: it cannot be, since its states are refused.
        expires_ms: Until then.
        name: Of its job.
        plan: As `unistream explain --json` says it.
        states: Null: it starts without a savepoint.
        advice: What to know before.
    """

    id: str | None
    expires_ms: int
    name: str
    plan: Any
    states: StatesPlanned | None
    advice: tuple[str, ...]


class PlanFailed(ConfigError):
    """The pipeline cannot be planned. `frames`: the traceback of the user's own code; "": none."""

    def __init__(self, why: str, frames: str) -> None:
        super().__init__(why)
        self.frames = frames


class KeptPlan(NamedTuple):
    """A job that may be started. `asker`: id of the token by which it was asked for."""

    submission: bytes
    asker: str
    expires_ms: int


class KeptPlans:
    """Plans that nobody has started, the newest ones. Thread-safe."""

    def __init__(self, now_ms: NowMs) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._plans: OrderedDict[str, KeptPlan] = OrderedDict()

    def add(self, id_: str, submission: bytes, asker: str) -> int:
        """Keeps it, maybe instead of older ones; until when."""
        with self._lock:
            expires_ms = self._now_ms() + LASTS_MS
            self._plans[id_] = KeptPlan(submission, asker, expires_ms)
            while len(self._plans) > 1 and not self._fit():
                self._plans.popitem(last=False)
            return expires_ms

    def get(self, id_: str, asker: str) -> bytes:
        """The submission. Raises NotFound: there is none, or it is another's, or too old."""
        with self._lock:
            found = self._plans.get(id_)
            if found is None or found.asker != asker or found.expires_ms <= self._now_ms():
                raise NotFound(
                    f"there is no plan {id_} of yours: one is kept for {LASTS_MS // 60_000} minutes, of "
                    f"{KEPT_MAX} the newest, by the master that has made it; plan the pipeline again"
                )
            return found.submission

    def _fit(self) -> bool:
        oldest = next(iter(self._plans.values()))
        return (
            len(self._plans) <= KEPT_MAX
            and sum(len(one.submission) for one in self._plans.values()) <= KEPT_BYTES_MAX
            and oldest.expires_ms > self._now_ms()
        )


class PlansApi:
    """The handlers. `folder`: from which modules are imported."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        paths: AllowedPaths,
        now_ms: NowMs,
        *,
        folder: str = FOLDER,
        limits: PlanLimits | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._paths = paths
        self._folder = folder
        self._limits = limits or PlanLimits()
        self._kept = KeptPlans(now_ms)

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/plans")(self.planning)
        router.post("/unistream/plans")(self.plan)
        router.post("/unistream/plans/{id_}/start")(self.start)

    def planning(self) -> Response:
        """Answers with a `PlanningShown`."""
        enabled = self._dispatcher.config.get(WEB_SUBMIT_ENABLE)
        return json_answer(PlanningShown(enabled=enabled, folder=self._folder, limits=self._limits))

    async def plan(self, request: Request) -> Response:
        """400: it cannot be started so, and why, and then the traceback of the user's code."""
        self._check_enabled()
        question = self._question(await body_of(request, PlanBody), identity_of(request))
        if not PLACES.acquire(blocking=False):
            raise Transient(f"{AT_ONCE_MAX} pipelines are planned already, and no more are at once")
        try:
            said = await self._said(request, question)
        finally:
            PLACES.release()
        answer = self._understood(said)
        logger.info("event=pipeline_planned entry_point=%r", question.entry_point)
        return json_answer(await run_in_threadpool(self._shown, answer, identity_of(request)), 201)

    async def start(self, id_: str, request: Request) -> Response:
        """Answered as a submission."""
        self._check_enabled()
        plan, asker = trigger_id(id_), identity_of(request).token
        return json_answer({"jobid": await run_in_threadpool(self._start, plan, asker)}, 202)

    def _start(self, plan: str, asker: str) -> str:
        submission = msgspec.msgpack.decode(self._kept.get(plan, asker), type=SubmitRequest)
        return self._dispatcher.submit(structs.replace(submission, request_id=f"plan {plan}"))

    def _check_enabled(self) -> None:
        if not self._dispatcher.config.get(WEB_SUBMIT_ENABLE):
            raise Forbidden(
                f"this cluster plans no pipelines by itself ({WEB_SUBMIT_ENABLE.key} is false): "
                "'unistream run' plans one where its code is, and submits it"
            )

    def _question(self, body: PlanBody, identity: Identity) -> PlanQuestion:
        """Raises ConfigError, Forbidden: what can be seen without the pipeline."""
        if not 0 < len(body.entry_point) <= ENTRY_POINT_CHARS_MAX:
            raise ConfigError(f"the entry point has 1 to {ENTRY_POINT_CHARS_MAX} characters")
        self._paths.check(target(body.savepoint), identity)
        self._paths.check_options(body.config, identity)
        cluster = self._dispatcher.config
        chosen = cluster.get(PARALLELISM) if body.parallelism is None else body.parallelism
        return PlanQuestion(
            entry_point=body.entry_point,
            folder=self._folder,
            parameters=body.parameters,
            name=body.name,
            config={PARALLELISM.key: str(chosen), **body.config},
            savepoint=body.savepoint,
            allow_non_restored=body.allow_non_restored,
            recovery={key: value for key, value in cluster.to_dict().items() if key.startswith(RECOVERY)},
            store=store_options(cluster),
            limits=self._limits,
        )

    async def _said(self, request: Request, question: PlanQuestion) -> Said:
        with tempfile.TemporaryDirectory(prefix="unistream-plan-", ignore_cleanup_errors=True) as folder:
            process = BoundedProcess(
                MODULE,
                seconds=self._limits.seconds,
                answer_bytes=self._limits.answer_bytes,
                environment=scrubbed(os.environ, folder),
                folder=folder,
            )
            asked = msgspec.msgpack.encode(question)
            return await while_connected(request, lambda: process.ask(lambda: asked), process.stop)

    def _understood(self, said: Said) -> PipelinePlanned:
        if said.stopped:
            raise (ConfigError if said.late else Transient)(f"the plan was stopped: {said.stopped}")
        try:
            answer: PlanAnswer = msgspec.msgpack.decode(said.answer or b"", type=PlanAnswer)
        except UNDECODABLE:
            raise ConfigError(self._why_it_ended(said)) from None
        if isinstance(answer, PlanRefused):
            if answer.is_away:
                raise Unreachable(answer.why)
            raise PlanFailed(answer.why, answer.frames)
        return answer

    def _why_it_ended(self, said: Said) -> str:
        limits = self._limits
        if said.answer is None:
            most = describe_bytes(limits.answer_bytes)
            return f"the job of the pipeline has more than {most}: do not capture data in functions"
        if said.code == -signal.SIGXCPU:
            return f"the plan was stopped: it takes more than {limits.seconds} s"
        return (
            f"the process that plans the pipeline ended without an answer (exit code {said.code}): its code "
            f"has ended it, or it takes more than {describe_bytes(limits.memory_bytes)} of memory; "
            "'unistream run' has no limit"
        )

    def _shown(self, answer: PipelinePlanned, identity: Identity) -> PlanShown:
        """Raises ConfigError, Forbidden: the pipeline itself names a place that it may not."""
        submission = _decoded(answer.submission)
        self._paths.check_submission(submission, identity)
        self._dispatcher.check(submission)
        states = msgspec.json.decode(answer.states, type=StatesPlanned) if answer.states else None
        id_, expires_ms = None, 0
        if states is None or not states.refused:
            id_ = uuid.uuid4().hex
            expires_ms = self._kept.add(id_, answer.submission, identity.token)
        return PlanShown(
            id=id_,
            expires_ms=expires_ms,
            name=submission.graph.name,
            plan=msgspec.json.decode(answer.explained),
            states=states,
            advice=answer.advice,
        )


def _decoded(submission: bytes) -> SubmitRequest:
    """What the user's process says is looked at as what a client says. Raises ConfigError."""
    try:
        return msgspec.msgpack.decode(submission, type=SubmitRequest)
    except UNDECODABLE as error:
        raise ConfigError(f"the process that plans the pipeline has made no job: {error}") from error
