"""Users of a simulated cluster: they submit and cancel jobs, request snapshots and rescales."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final, Protocol

from unistream.base.config import CLAIM_MODE, INCREMENTAL_CHECKPOINTS
from unistream.base.errors import UnistreamError, Unreachable
from unistream.base.ids import JobId, LineageId, OperatorUid, TaskManagerId, VertexId
from unistream.core.contract import SnapshotRequest
from unistream.master.job import JobMaster
from unistream.master.job import widths as every_width
from unistream.model.chain import Chain
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind
from unistream.model.submission import SubmitRequest
from unistream.testing.sim.checkers import VisibleOutputs
from unistream.testing.sim.graphs import chains_of, graph_of, vertex_id
from unistream.testing.sim.master import SimMaster
from unistream.testing.sim.results import RequestedWidths
from unistream.testing.sim.scenario import Rescale, Scenario, ScenarioKind, SimPipeline, UserRequest
from unistream.testing.sim.store import SimStore
from unistream.testing.sim.table import Table
from unistream.testing.sim.world import Violation, World

Chains = dict[VertexId, Callable[[], Chain]]
"""Vertex -> creates the operators of one task."""

WATCH_MS: Final = 2  # between two looks at the storage
PATIENCE_MS: Final = 5_000


@dataclass(slots=True)
class Job:
    """One job as its user knows it. `restarted`: from another job's snapshot, or another job from its."""

    pipelines: tuple[SimPipeline, ...]
    request: SubmitRequest
    id: JobId
    lineage: LineageId | None = None
    cancelled: bool = False
    stop: SnapshotKind | None = None
    restarted: bool = False


class UsersCluster(Protocol):
    """The cluster; `run.SimRun`."""

    world: World
    scenario: Scenario
    store: SimStore
    table: Table
    outputs: VisibleOutputs
    requested: RequestedWidths
    chains: dict[JobId, Chains]
    leader: SimMaster | None

    def draining(self) -> list[TaskManagerId]: ...


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request that `master` has not answered: a snapshot of `kind`, or (None) a rescale to `widths`."""

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

    def __init__(self, site: UsersCluster) -> None:
        self._site = site
        self._world = site.world
        self.jobs: list[Job] = []
        self._waiting: list[PendingRequest] = []

    # --- jobs -------------------------------------------------------------------------------------

    def submit(self, name: str, pipelines: tuple[SimPipeline, ...], savepoint: str | None) -> None:
        """One job, perhaps from a savepoint; the request's id is `name`."""
        site = self._site
        sharing = site.scenario.sharing
        config = {}
        if sharing is not None:
            config = {CLAIM_MODE.key: sharing.claim, INCREMENTAL_CHECKPOINTS.key: "true"}
        graph = graph_of(name, pipelines, config, site.scenario.job_type)
        request = SubmitRequest(graph=graph, artifact=b"code", request_id=name, savepoint=savepoint)
        self._submit(request, chains_of(pipelines, site.table), pipelines)

    def _submit(
        self, request: SubmitRequest, chains: Chains, pipelines: tuple[SimPipeline, ...] = ()
    ) -> None:
        site, leader = self._site, self._site.leader
        assert leader is not None, "users wait for a leader"
        id_ = leader.dispatcher.job_id(request.request_id)
        site.chains[id_] = chains
        site.requested.submitted(id_, request.graph, adaptive=site.scenario.kind is ScenarioKind.ADAPTIVE)
        job = Job(pipelines=pipelines, request=request, id=id_, restarted=request.savepoint is not None)
        self.jobs.append(job)
        assert leader.dispatcher.submit(request) == id_, "the same request is the same job"
        job.lineage = leader.masters()[id_].setup.lineage

    def restart(self, job: Job, savepoint: str) -> None:
        """Starts a stopped or canceled job again from its savepoint or checkpoint, maybe at another
        parallelism."""
        pipelines = job.pipelines
        widths = self._site.scenario.restarts_as if job is self.jobs[0] else None
        if widths is not None:
            pipelines = (replace(pipelines[0], parallelism=widths), *pipelines[1:])
            self._world.sometimes("a job was restored from a savepoint at another parallelism")
        stopped = job.stop is SnapshotKind.SUSPEND
        self._world.sometimes(f"a {'stopped' if stopped else 'cancelled'} job was restored from its snapshot")
        job.stop = SnapshotKind.TERMINATE  # its successor has another id
        self._site.store.given.add(savepoint)
        self.submit(f"again-{job.id}", pipelines, savepoint)
        job.cancelled = job.restarted = True  # its successor reads the rest of the input

    def plan_requests(self) -> None:
        """Schedules the requests of the scenario, all for the first job."""
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
        for request in self._site.scenario.requests:
            self._world.at(request.at_ms, lambda request=request: self._request(job, request))  # type: ignore[misc]

    def _watch(self, job: Job) -> None:
        """Waits for the next checkpoint, so that tasks that wait for it end during the requests."""
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
        """The old leader's requests are never answered; what it has accepted is done by the new one."""
        self._waiting = []
        for job in self.jobs:
            if job.id not in self._site.store.results:
                self._look_up(job)

    def _look_up(self, job: Job) -> None:
        """A stop whose user waits for no answer: what is to be done is stored; what is done is final."""
        newest = self._site.store.newest(job.id)
        if newest is not None and newest.manifest.kind.is_synchronous:
            job.stop = newest.manifest.kind
        else:
            job.stop = self._site.store.pointers.request(job.id).stop

    def _resubmit(self, job: Job) -> None:
        """The client has lost the answer and repeats the request."""
        leader = self._site.leader
        if leader is not None and not leader.process.is_paused:
            known = len(leader.masters())
            assert leader.dispatcher.submit(job.request) == job.id, "the same request is the same job"
            if len(leader.masters()) != known:
                raise Violation(f"I15: {job.id} was submitted again and started twice")
            if job.id in self._site.store.results:
                self._world.sometimes("a job that had ended was submitted again")

    # --- requests ---------------------------------------------------------------------------------

    def _leader_of(self, job: Job) -> SimMaster | None:
        leader = self._site.leader
        if leader is None or leader.process.is_paused or job.id in self._site.store.results:
            return None
        return leader if job.id in leader.masters() else None

    def _request(self, job: Job, request: UserRequest) -> None:
        leader = self._leader_of(job)
        if leader is None:
            return
        self._world.log(
            f"user: {request.kind.value if request.kind else 'cancel'} {job.id}", "user", leader.process.name
        )
        try:
            if request.kind is None:
                leader.dispatcher.cancel(job.id)
                job.cancelled = True
            else:
                wanted = SnapshotRequest(kind=request.kind, format=self._format())
                answer = leader.dispatcher.snapshot(job.id, wanted)
                if request.kind.is_synchronous:
                    job.stop = request.kind
                self._waiting.append(PendingRequest(job, leader.masters()[job.id], request.kind, {}, answer))
        except UnistreamError as error:
            self._world.log(f"user gets: {error}", "user")

    def _format(self) -> SavepointFormat:
        sharing = self._site.scenario.sharing
        native = sharing is not None and sharing.native
        return SavepointFormat.NATIVE if native else SavepointFormat.CANONICAL

    def _rescale(self, job: Job, request: Rescale) -> None:
        widths = {vertex_id(job.pipelines[0], place): n for place, n in request.parallelism.items()}
        self.request_widths(job, widths)

    def request_widths(self, job: Job, widths: Mapping[VertexId, int]) -> None:
        """Requests another parallelism of these vertices."""
        leader = self._leader_of(job)
        if leader is None:
            return
        self._world.log(f"user: rescale {job.id} to {dict(widths)}", "user", leader.process.name)
        self._mark_moment(leader, job)
        view = leader.masters()[job.id].live.view()
        try:
            answer = leader.dispatcher.rescale(job.id, {str(vertex): n for vertex, n in widths.items()})
        except UnistreamError as error:
            self._world.sometimes("a rescale was refused at once")
            self._world.log(f"user gets: {error}", "user")
            return
        for vertex, parallelism in every_width(view, widths).items():
            self._site.requested.rescale(job.id, vertex, parallelism)
        self._waiting.append(PendingRequest(job, leader.masters()[job.id], None, widths, answer))

    def _mark_moment(self, leader: SimMaster, job: Job) -> None:
        master = leader.masters()[job.id]
        view = master.live.view()
        if master.live.checkpoints().in_progress:
            self._world.sometimes("a rescale was requested while a checkpoint was in flight")
        if view.state == "RESTARTING":
            self._world.sometimes("a rescale was requested during a restart")

    # --- answers ----------------------------------------------------------------------------------

    def check_answers(self) -> None:
        """Checks new answers; raises `Violation` for a wrong one."""
        if not self._waiting:
            return
        open_ = []
        for pending in self._waiting:
            if not pending.answer.done():
                open_.append(pending)
            elif isinstance(pending.answer.exception(), Unreachable):
                self._is_left(pending)
            elif pending.answer.exception() is not None:
                self._is_refused(pending)
            elif pending.kind is None:
                self._is_rescaled(pending)
            else:
                self._snapshot_is_there(pending.job, pending.kind, pending.answer.result())
        self._waiting = open_

    def _is_left(self, pending: PendingRequest) -> None:
        """The next leader stops the job."""
        self._world.log(f"user gets: {pending.name} is left: {pending.answer.exception()}", "user")
        self._world.sometimes("a stop was left to the next leader")

    def _is_refused(self, pending: PendingRequest) -> None:
        self._world.log(f"user gets: {pending.name} failed: {pending.answer.exception()}", "user")
        self._world.sometimes(f"a {pending.name} was refused or failed")
        if (
            pending.kind is not None
            and pending.kind.is_synchronous
            and pending.job.id not in self._site.store.results
        ):
            pending.job.stop = None

    def _is_rescaled(self, pending: PendingRequest) -> None:
        """An adaptive job may still be narrower than requested. While the answer waited for the store, a
        later request may have changed the same vertex."""
        self._world.log(f"user gets: {pending.job.id} is rescaled", "user")
        self._world.sometimes("a job was rescaled by hand")
        view = pending.master.live.view()
        graph = (
            view.graph if self._site.scenario.kind is not ScenarioKind.ADAPTIVE else view.wanted or view.graph
        )
        requests = [one for one in self._waiting if one.job is pending.job]
        later = requests[[one is pending for one in requests].index(True) + 1 :]
        for vertex, parallelism in pending.widths.items():
            found = graph.vertex(vertex).parallelism
            if found not in {parallelism, *(one.widths.get(vertex) for one in later)}:
                raise Violation(
                    f"I11: a rescale of {vertex} to {parallelism} was reported as done: it is {found}"
                )

    def _snapshot_is_there(self, job: Job, kind: SnapshotKind, path: str) -> None:
        self._world.log(f"user gets: {kind.value} at {path}", "user")
        self._world.sometimes(f"a {kind.value} was completed")
        self._site.store.given.add(path)
        if path not in self._site.store.manifests:
            raise Violation(f"I7: a user was given {path}, which does not exist")
        if kind.is_synchronous and job.id not in self._site.store.results:
            raise Violation(f"I15: {job.id} was reported as stopped and has no result")

    # --- the end ----------------------------------------------------------------------------------

    def keeps_up(self, job: Job) -> bool:
        """An unbounded job has shown all of its input. An adaptive one runs at its full parallelism, too, if
        there is room for its workers."""
        if not any(pending.job is job for pending in self._waiting):
            self._look_up(job)
        if job.cancelled or job.pipelines[0].contents.bounded or job.stop is not None:
            return False
        if self._world.places is None and self._site.draining():
            return False
        if any(self._site.outputs.missing(OperatorUid(p.name)) for p in job.pipelines):
            return False
        if self._site.scenario.kind is not ScenarioKind.ADAPTIVE or self._world.places is not None:
            return True
        assert self._site.leader is not None, "there is a leader"
        master = self._site.leader.masters().get(job.id)
        if master is None:
            return False
        view = master.live.view()
        if view.state != "RUNNING" or view.graph != (view.wanted or view.graph):
            return False
        self._world.sometimes("an adaptive job reached its full parallelism")
        return True

    def check_answered(self) -> None:
        """The present leader has answered all requests."""
        self.check_answers()
        if self._waiting:
            pending = self._waiting[0]
            raise Violation(f"I3: {pending.name} of {pending.job.id} was never answered")

    def text(self) -> str:
        """The jobs, for messages."""
        site, parts = self._site, []
        for job in self.jobs:
            master = site.leader.masters().get(job.id) if site.leader is not None else None
            view = master.live.state if master is not None else "unknown"
            missing = [site.outputs.missing(OperatorUid(p.name)) for p in job.pipelines]
            parts.append(f"{job.id} is {site.store.results.get(job.id, view)}, rows not visible: {missing}")
        return "; ".join(parts)
