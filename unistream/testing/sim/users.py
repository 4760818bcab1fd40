"""Users of a simulated cluster: they submit, ask for snapshots or another parallelism, cancel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final, Protocol

from unistream.base.config import CLAIM_MODE, INCREMENTAL_CHECKPOINTS
from unistream.base.errors import UnistreamError
from unistream.base.ids import JobId, LineageId, OperatorUid, VertexId
from unistream.core.contract import SnapshotRequest
from unistream.master.job_master import JobMaster
from unistream.master.job_setup import SubmitRequest
from unistream.model.chain import Chain
from unistream.model.elements import SavepointFormat, SnapshotKind
from unistream.testing.sim.checkers import Outputs
from unistream.testing.sim.graphs import chains_of, graph_of, vertex_id
from unistream.testing.sim.master import SimMaster
from unistream.testing.sim.results import Asked
from unistream.testing.sim.scenario import Kind, Pipeline, Rescale, Scenario, Wish
from unistream.testing.sim.store import Store
from unistream.testing.sim.table import Table
from unistream.testing.sim.world import Violation, World

Chains = dict[VertexId, Callable[[], Chain]]
"""Vertex -> creates the operators of one task."""

WATCH_MS: Final = 2  # between two looks at the storage
PATIENCE_MS: Final = 5_000


@dataclass(slots=True)
class Job:
    """One job as its user knows it. `gone_on`: it is one that goes on for another, or another does for it."""

    pipelines: tuple[Pipeline, ...]
    request: SubmitRequest
    id: JobId
    lineage: LineageId | None = None
    cancelled: bool = False
    stop: SnapshotKind | None = None
    gone_on: bool = False


class Site(Protocol):
    """The cluster that they use; `run.Run`."""

    world: World
    scenario: Scenario
    store: Store
    table: Table
    outputs: Outputs
    asked: Asked
    chains: dict[JobId, Chains]
    leader: SimMaster | None


@dataclass(frozen=True, slots=True)
class _Question:
    """Somebody waits for `master`. `widths`: that were asked for, if no snapshot (of kind `kind`) was."""

    job: Job
    master: JobMaster
    kind: SnapshotKind | None
    widths: Mapping[VertexId, int]
    answer: Future[str]

    @property
    def name(self) -> str:
        return "rescale" if self.kind is None else self.kind.value


class Users:
    """All of a run.

    Attributes:
        jobs: In the order in which they were submitted.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._world = site.world
        self.jobs: list[Job] = []
        self._waiting: list[_Question] = []

    # --- jobs -------------------------------------------------------------------------------------

    def submit(self, name: str, pipelines: tuple[Pipeline, ...], savepoint: str | None) -> None:
        """One job, perhaps from a savepoint; the request's id is `name`."""
        site = self._site
        sharing = site.scenario.sharing
        config = {}
        if sharing is not None:
            config = {CLAIM_MODE.key: sharing.claim, INCREMENTAL_CHECKPOINTS.key: "true"}
        graph = graph_of(name, pipelines, config, site.scenario.job_type)
        request = SubmitRequest(graph=graph, artifact=b"code", request_id=name, savepoint=savepoint)
        self._submit(request, chains_of(pipelines, site.table), pipelines)

    def _submit(self, request: SubmitRequest, chains: Chains, pipelines: tuple[Pipeline, ...] = ()) -> None:
        site, leader = self._site, self._site.leader
        assert leader is not None, "users wait for a leader"
        id_ = leader.dispatcher.job_id(request.request_id)
        site.chains[id_] = chains
        site.asked.submitted(id_, request.graph, adaptive=site.scenario.kind is Kind.ADAPTIVE)
        job = Job(pipelines=pipelines, request=request, id=id_, gone_on=request.savepoint is not None)
        self.jobs.append(job)
        assert leader.dispatcher.submit(request) == id_, "the same request is the same job"
        job.lineage = leader.masters()[id_].identity.lineage

    def go_on(self, job: Job, savepoint: str) -> None:
        """The job was stopped or cancelled; it starts again from its savepoint or checkpoint, perhaps at
        another parallelism."""
        pipelines = job.pipelines
        widths = self._site.scenario.go_on_as if job is self.jobs[0] else None
        if widths is not None:
            pipelines = (replace(pipelines[0], parallelism=widths), *pipelines[1:])
            self._world.sometimes("a job went on from a savepoint at another parallelism")
        stopped = job.stop is SnapshotKind.SUSPEND
        self._world.sometimes(f"a {'stopped' if stopped else 'cancelled'} job went on from its snapshot")
        job.stop = SnapshotKind.TERMINATE  # what follows has another id
        self._site.store.given.add(savepoint)
        self.submit(f"again-{job.id}", pipelines, savepoint)
        job.cancelled = job.gone_on = True  # its input is the next one's to finish

    def plan_wishes(self) -> None:
        """At the times that were drawn; they all concern the first job."""
        world, scenario, job = self._world, self._site.scenario, self.jobs[0]
        for _ in range(scenario.resubmits):
            world.at(world.between(0, scenario.faulty_ms), lambda: self._resubmit(job))
        if scenario.hurried_ms is None:
            self._plan(job)
        else:
            world.at(scenario.hurried_ms, lambda: self._watch(job))
        for rescale in scenario.rescales:
            world.at(rescale.at_ms, lambda rescale=rescale: self._rescale(job, rescale))  # type: ignore[misc]

    def _plan(self, job: Job) -> None:
        for wish in self._site.scenario.wishes:
            self._world.at(wish.at_ms, lambda wish=wish: self._wish(job, wish))  # type: ignore[misc]

    def _watch(self, job: Job) -> None:
        """Until another checkpoint is there: tasks that wait for it end while the users ask. Not for ever."""
        former = self._newest(job)
        until_ms = self._world.now + PATIENCE_MS

        def look() -> None:
            if self._newest(job) != former:
                self._plan(job)
            elif self._world.now < until_ms:
                self._world.at(WATCH_MS, look)

        look()

    def _newest(self, job: Job) -> int:
        newest = self._site.store.newest(job.id)
        return 0 if newest is None else newest.manifest.checkpoint_id

    def leader_changed(self) -> None:
        """What they have asked of the old leader is never answered."""
        self._waiting = []

    def _resubmit(self, job: Job) -> None:
        """The client did not hear the answer and asks again."""
        leader = self._site.leader
        if leader is not None and not leader.process.is_paused:
            known = len(leader.masters())
            assert leader.dispatcher.submit(job.request) == job.id, "the same request is the same job"
            if len(leader.masters()) != known:
                raise Violation(f"I15: {job.id} was submitted again and started twice")
            if job.id in self._site.store.results:
                self._world.sometimes("a job that had ended was submitted again")

    # --- wishes -----------------------------------------------------------------------------------

    def _leader_of(self, job: Job) -> SimMaster | None:
        leader = self._site.leader
        if leader is None or leader.process.is_paused or job.id in self._site.store.results:
            return None
        return leader

    def _wish(self, job: Job, wish: Wish) -> None:
        leader = self._leader_of(job)
        if leader is None:
            return
        self._world.tell(f"user: {wish.kind.value if wish.kind else 'cancel'} {job.id}")
        try:
            if wish.kind is None:
                leader.dispatcher.cancel(job.id)
                job.cancelled = True
            else:
                request = SnapshotRequest(kind=wish.kind, format=self._format())
                answer = leader.dispatcher.snapshot(job.id, request)
                if wish.kind.is_synchronous:
                    job.stop = wish.kind
                self._waiting.append(_Question(job, leader.masters()[job.id], wish.kind, {}, answer))
        except UnistreamError as error:
            self._world.tell(f"user gets: {error}")

    def _format(self) -> SavepointFormat:
        sharing = self._site.scenario.sharing
        native = sharing is not None and sharing.native
        return SavepointFormat.NATIVE if native else SavepointFormat.CANONICAL

    def _rescale(self, job: Job, wish: Rescale) -> None:
        widths = {vertex_id(job.pipelines[0], place): n for place, n in wish.parallelism.items()}
        self.ask_widths(job, widths)

    def ask_widths(self, job: Job, widths: Mapping[VertexId, int]) -> None:
        """A user wants these vertices at another parallelism, now."""
        leader = self._leader_of(job)
        if leader is None:
            return
        self._world.tell(f"user: rescale {job.id} to {dict(widths)}")
        self._mark_moment(leader, job)
        try:
            answer = leader.dispatcher.rescale(job.id, {str(vertex): n for vertex, n in widths.items()})
        except UnistreamError as error:
            self._world.sometimes("a rescale was refused at once")
            self._world.tell(f"user gets: {error}")
            return
        for vertex, parallelism in widths.items():
            self._site.asked.rescale(job.id, vertex, parallelism)
        self._waiting.append(_Question(job, leader.masters()[job.id], None, widths, answer))

    def _mark_moment(self, leader: SimMaster, job: Job) -> None:
        master = leader.masters()[job.id]
        view = master.view()
        if master.checkpoints().in_progress:
            self._world.sometimes("a rescale was asked for while a checkpoint was in flight")
        if view.state == "RESTARTING":
            self._world.sometimes("a rescale was asked for while a restart was under way")

    # --- answers ----------------------------------------------------------------------------------

    def look_at_answers(self) -> None:
        """Those that have come since the last look; raises `Violation` for one that is not true."""
        if not self._waiting:
            return
        open_ = []
        for question in self._waiting:
            if not question.answer.done():
                open_.append(question)
            elif question.answer.exception() is not None:
                self._is_refused(question)
            elif question.kind is None:
                self._is_rescaled(question)
            else:
                self._snapshot_is_there(question.job, question.kind, question.answer.result())
        self._waiting = open_

    def _is_refused(self, question: _Question) -> None:
        self._world.tell(f"user gets: {question.name} failed: {question.answer.exception()}")
        self._world.sometimes(f"a {question.name} was refused or failed")
        if (
            question.kind is not None
            and question.kind.is_synchronous
            and question.job.id not in self._site.store.results
        ):
            question.job.stop = None

    def _is_rescaled(self, question: _Question) -> None:
        """An adaptive job may still be narrower than it was asked to be."""
        self._world.tell(f"user gets: {question.job.id} is rescaled")
        self._world.sometimes("a job was rescaled by hand")
        view = question.master.view()
        graph = view.graph if self._site.scenario.kind is not Kind.ADAPTIVE else view.wanted or view.graph
        for vertex, parallelism in question.widths.items():
            found = graph.vertex(vertex).parallelism
            if found != parallelism:
                raise Violation(
                    f"I11: a user was told that {vertex} is rescaled to {parallelism}: it is {found}"
                )

    def _snapshot_is_there(self, job: Job, kind: SnapshotKind, path: str) -> None:
        self._world.tell(f"user gets: {kind.value} at {path}")
        self._world.sometimes(f"a {kind.value} was completed")
        self._site.store.given.add(path)
        if path not in self._site.store.manifests:
            raise Violation(f"I7: a user was given {path}, which is not there")
        if kind.is_synchronous and job.id not in self._site.store.results:
            raise Violation(f"I15: {job.id} was said to be stopped and has no result")

    # --- the end ----------------------------------------------------------------------------------

    def keeps_up(self, job: Job) -> bool:
        """An unbounded job does not end: all that there is to read is visible. An adaptive one is as wide as
        it can be, too, when there is room for all workers that it needs."""
        if job.cancelled or job.pipelines[0].contents.bounded or job.stop is not None:
            return False
        if any(self._site.outputs.missing(OperatorUid(p.name)) for p in job.pipelines):
            return False
        if self._site.scenario.kind is not Kind.ADAPTIVE or self._world.places is not None:
            return True
        assert self._site.leader is not None, "asked while there is one"
        view = self._site.leader.masters()[job.id].view()
        if view.state != "RUNNING" or view.graph != (view.wanted or view.graph):
            return False
        self._world.sometimes("an adaptive job came to its full width")
        return True

    def check_answered(self) -> None:
        """Whoever has asked a leader that still leads has an answer by now."""
        self.look_at_answers()
        if self._waiting:
            question = self._waiting[0]
            raise Violation(f"I3: {question.name} of {question.job.id} was never answered")

    def text(self) -> str:
        """Jobs that are not at their end."""
        site, parts = self._site, []
        for job in self.jobs:
            master = site.leader.masters().get(job.id) if site.leader is not None else None
            view = master.state if master is not None else "unknown"
            missing = [site.outputs.missing(OperatorUid(p.name)) for p in job.pipelines]
            parts.append(f"{job.id} is {site.store.results.get(job.id, view)}, rows not visible: {missing}")
        return "; ".join(parts)
