"""Users of a cluster with several masters: they look for the leader, and repeat what was not answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from random import Random
from typing import Any, Final, Protocol

from tests.support.masters.leader import ContendedMaster
from tests.support.masters.moments import ANSWERED, Moments
from unistream.base.errors import AlreadyEnded, ConfigError, NotFound, UnistreamError
from unistream.base.ids import JobId, LeaderEpoch, VertexId, job_of_request
from unistream.core.contract import SnapshotRequest
from unistream.master.job.live import widths as every_width
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_job import StoredRequest
from unistream.model.submission import SubmitRequest
from unistream.testing.sim.scenario import Scenario, SimPipeline, UserRequest
from unistream.testing.sim.users import Chains, Job, PendingRequest, Users, UsersCluster
from unistream.testing.sim.variants import rescales_of
from unistream.testing.sim.world import Violation

AGAIN_MS: Final = 400.0
ANSWER_MS: Final = 3_000.0

RESCALED: Final = 0.2  # share of the runs in which users request another parallelism
RESCALE_TRIES: Final = 10
RESCALED_MS: Final = 6_000.0  # when they do so at the latest
CROSSING: Final = 0.25  # share of the runs in which users contradict each other
GAPS_MS: Final = (5.0, 60.0, 400.0)  # the longest time between two such requests

Done = Callable[[Any, Exception | None], None]


def crossing(scenario: Scenario, random: Random) -> Scenario:
    """In some runs a cancellation and a stop come at almost the same time, in any order."""
    if random.random() >= CROSSING:
        return scenario
    at_ms, gap_ms = random.uniform(800, scenario.faulty_ms), random.choice(GAPS_MS)
    stops = (SnapshotKind.SUSPEND, SnapshotKind.TERMINATE, SnapshotKind.TERMINATE)
    kinds: list[SnapshotKind | None] = [None, *random.sample(stops, random.choice((1, 1, 2)))]
    random.shuffle(kinds)
    requests = tuple(UserRequest(at_ms=at_ms + gap_ms * random.random(), kind=kind) for kind in kinds)
    return replace(scenario, requests=requests)


def rescaled(scenario: Scenario, random: Random) -> Scenario:
    """In some runs users request another parallelism, once or several times, of jobs that run for a while."""
    if random.random() >= RESCALED:
        return scenario
    jobs = tuple(
        tuple(replace(p, contents=replace(p.contents, rows=8, batch=1, pace_ms=800)) for p in job)
        for job in scenario.jobs
    )
    config = {
        **scenario.config,
        "execution.checkpointing.min-pause": "0 ms",
        "execution.checkpointing.tolerable-failed-checkpoints": "100",
    }
    return replace(
        scenario,
        jobs=jobs,
        config=config,
        faulty_ms=max(scenario.faulty_ms, 1.5 * RESCALED_MS),
        rescales=rescales_of(scenario, random, RESCALED_MS),
    )


class MastersSite(UsersCluster, Protocol):
    """The run. `found`: the leader as ZooKeeper has it published, if its process lives."""

    moments: Moments

    @property
    def found(self) -> ContendedMaster | None: ...

    def stored_request(self, job: JobId) -> StoredRequest: ...

    @property
    def newest_epoch(self) -> LeaderEpoch: ...


class PatientUsers(Users):
    """All of a run.

    Attributes:
        accepted: Jobs whose submission was answered.
        cancelled: Jobs whose cancellation was answered -> the leader that led then.
    """

    def __init__(self, site: MastersSite) -> None:
        super().__init__(site)
        self._masters = site
        self.accepted: set[JobId] = set()
        self.cancelled: dict[JobId, LeaderEpoch] = {}
        self._triggers = 0

    # --- calls ------------------------------------------------------------------------------------

    def _call(self, call: Callable[[ContendedMaster], Any], done: Done) -> None:
        """Asks the present leader; `done` gets the answer, or an error: also that there was no answer."""
        world, leader = self._world, self._masters.found
        settled: list[bool] = []

        def settle(result: Any, error: Exception | None) -> None:
            if not settled:
                settled.append(True)
                done(result, error)

        def arrive() -> None:
            assert leader is not None, "it is sent to one"
            if leader.is_closing:
                settle(None, ConnectionError("nobody listens"))
                return
            try:
                result, error = call(leader), None
            except UnistreamError as failure:
                result, error = None, failure
            if world.chance(world.faults.loss):
                world.sometimes("an answer to a user was lost")
            else:
                world.at(world.between(0.2, 4), lambda: settle(result, error))

        if leader is None:
            world.at(AGAIN_MS, lambda: settle(None, TimeoutError("nobody leads")))
            return
        world.at(world.between(0.2, 4), arrive, leader.machine.threads["jobs"])
        world.at(ANSWER_MS, lambda: settle(None, TimeoutError("no answer")))

    # --- submission -------------------------------------------------------------------------------

    def _submit(
        self, request: SubmitRequest, chains: Chains, pipelines: tuple[SimPipeline, ...] = ()
    ) -> None:
        assert request.request_id is not None, "its users repeat it"
        id_ = job_of_request(request.request_id)
        self._site.chains[id_] = chains
        self._site.requested.submitted(id_, request.graph, adaptive=False)
        self.jobs.append(
            Job(pipelines=pipelines, request=request, id=id_, restarted=request.savepoint is not None)
        )
        self._try_submit(self.jobs[-1])

    def _try_submit(self, job: Job) -> None:
        def done(result: Any, error: Exception | None) -> None:
            if isinstance(error, ConfigError):
                raise Violation(f"I3: {job.id} was refused: {error}")
            if error is not None:
                self._world.sometimes("a submission was repeated")
                self._world.log(f"user: {job.id} is submitted again: {error}")
                self._world.at(AGAIN_MS, lambda: self._try_submit(job))
                return
            assert result == job.id, "the same request is the same job"
            self._world.log(f"user: {job.id} is accepted")
            self.accepted.add(job.id)

        self._call(lambda leader: leader.dispatcher.submit(job.request), done)

    def _resubmit(self, job: Job) -> None:
        self._try_submit(job)

    # --- requests ---------------------------------------------------------------------------------

    def _look_up(self, job: Job) -> None:
        newest = self._site.store.newest(job.id)
        if newest is not None and newest.manifest.kind.is_synchronous:
            job.stop = newest.manifest.kind
        else:
            job.stop = self._masters.stored_request(job.id).stop

    def _snapshot_is_there(self, job: Job, kind: SnapshotKind, path: str) -> None:
        """A stop is final with the pointer to its savepoint: the next leader only records the result."""
        newest = self._site.store.newest(job.id)
        points = newest is not None and newest.directory == path
        if kind.is_synchronous and points and job.id not in self._site.store.results:
            self._world.sometimes("a stop was answered before its result was durable")
            self._site.store.given.add(path)
            return
        super()._snapshot_is_there(job, kind, path)

    def _is_refused(self, pending: PendingRequest) -> None:
        """No later leader may stop the job: the refusal was answered after the stop was withdrawn."""
        super()._is_refused(pending)
        job, kind = pending.job.id, pending.kind
        if kind is None or not kind.is_synchronous or job in self._site.store.results:
            return
        self._world.sometimes("a stop was refused, and the job goes on")
        again = any(other.job is pending.job and not other.answer.done() for other in self._waiting)
        if self._masters.stored_request(job).stop is kind and not again:
            raise Violation(f"I15: a {kind.value} of {job} was refused, and the next leader would do it")

    def _request(self, job: Job, request: UserRequest) -> None:
        if request.kind is None:
            self.cancel(job)
        else:
            self._snapshot(job, request)

    def cancel(self, job: Job) -> None:
        """Until it is accepted, or the job has ended."""
        if job.cancelled:
            return

        def done(_result: Any, error: Exception | None) -> None:
            if isinstance(error, AlreadyEnded | NotFound) and job.id in self._site.store.results:
                return
            if error is not None:
                self._world.log(f"user: {job.id} is cancelled again: {error}")
                self._world.at(AGAIN_MS, ask)
                return
            self._world.sometimes("a cancellation was accepted")
            self._masters.moments.comes(ANSWERED)
            self.cancelled.setdefault(job.id, self._masters.newest_epoch)

        def ask() -> None:
            job.cancelled = True  # it may be accepted from now on, whatever the user gets to know
            self._call(lambda leader: leader.dispatcher.cancel(job.id), done)

        self._world.log(f"user: cancel {job.id}")
        ask()

    def _snapshot(self, job: Job, request: UserRequest) -> None:
        kind = request.kind
        assert kind is not None, "else it is a cancellation"
        self._world.log(f"user: {kind.value} {job.id}")

        self._triggers += 1
        trigger = f"{self._triggers:032x}"

        def ask(leader: ContendedMaster) -> None:
            wanted = SnapshotRequest(kind=kind, format=self._format())
            answer = leader.dispatcher.snapshot(job.id, wanted, trigger)
            if kind.is_synchronous:
                job.stop = kind
            if self._masters.found is leader:
                self._waiting.append(PendingRequest(job, leader.masters()[job.id], kind, {}, answer))

        self._call(ask, self._log_error)

    def request_widths(self, job: Job, widths: Mapping[VertexId, int]) -> None:
        """Requests another parallelism of these vertices, and again if it is refused."""
        self._try_widths(job, widths, RESCALE_TRIES)

    def _try_widths(self, job: Job, widths: Mapping[VertexId, int], tries: int) -> None:
        if job.id in self._site.store.results or not tries:
            return
        self._world.log(f"user: rescale {job.id} to {dict(widths)}")

        def again(answer: Future[str]) -> None:
            if answer.exception() is not None:
                self._world.at(AGAIN_MS, lambda: self._try_widths(job, widths, tries - 1))

        def ask(leader: ContendedMaster) -> None:
            answer = leader.dispatcher.rescale(job.id, {str(vertex): n for vertex, n in widths.items()})
            answer.add_done_callback(again)
            master = leader.masters()[job.id]
            for vertex, parallelism in every_width(master.live.view(), widths).items():
                self._site.requested.rescale(job.id, vertex, parallelism)
            if self._masters.found is leader:
                self._waiting.append(PendingRequest(job, master, None, widths, answer))

        def done(_result: Any, error: Exception | None) -> None:
            if error is not None and not isinstance(error, ConfigError | TimeoutError):
                self._world.at(AGAIN_MS, lambda: self._try_widths(job, widths, tries - 1))
            self._log_error(None, error)

        self._call(ask, done)

    def _is_rescaled(self, pending: PendingRequest) -> None:
        super()._is_rescaled(pending)
        self._masters.moments.comes(ANSWERED)
        for vertex, parallelism in pending.widths.items():
            others = [
                other.widths[vertex]
                for other in self._waiting
                if other is not pending and other.job is pending.job and vertex in other.widths
            ]
            self._site.requested.answered(pending.job.id, vertex, parallelism, others)

    def _log_error(self, _result: Any, error: Exception | None) -> None:
        if error is not None:
            self._world.log(f"user gets: {error}")
