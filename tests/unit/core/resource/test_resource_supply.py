"""Profiles, probes, blocked hosts and workers that come by themselves; then anything in any order."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from unistream.base.ids import JobId, TaskManagerId
from unistream.core.contract import SlotRequest
from unistream.core.resource import (
    BlockRules,
    ResourceMachine,
    ResourceRules,
    missing_slots_text,
    profile_for,
    serves,
)
from unistream.core.resource import messages as rm
from unistream.model.resources import ANY_PROFILE, ResourceProfile

SMALL = ResourceProfile(memory_mb=256)
BIG = ResourceProfile(memory_mb=1024)
HUGE = ResourceProfile(memory_mb=10_000)


class Cluster:
    """A machine, its workers and what it has said. Every started worker can be looked up by its order."""

    def __init__(self, *, slots: int = 1, max_workers: int | None = None, **rules: Any) -> None:
        numbers = count()
        self.machine = ResourceMachine(
            slots_per_worker=slots,
            heartbeat_timeout_ms=10_000,
            idle_timeout_ms=5_000,
            start_timeout_ms=3_000,
            max_workers=max_workers,
            new_id=lambda prefix: f"{prefix}-{next(numbers)}",
            rules=ResourceRules(**rules),
        )
        self.now_ms = 1_000_000
        self.starting: dict[str, rm.StartWorker] = {}
        self.up: set[str] = set()
        self.probing: set[str] = set()
        self.granted: dict[tuple[str, str], str] = {}
        self.unfulfillable: list[rm.RefuseSlots] = []
        self.losses: list[rm.AnnounceLoss] = []
        self.tick()

    def do(self, event: rm.ResourceEvent) -> list[rm.ResourceCommand]:
        commands = self.machine.handle(event)
        self.machine.validate()
        for command in commands:
            match command:
                case rm.StartWorker(task_manager=worker):
                    self.starting[worker] = command
                case rm.ProbeWorker(worker):
                    self.probing.add(worker)
                case rm.GrantSlots(job=job, leases=leases):
                    self.granted |= {(job, lease.request): lease.task_manager for lease in leases}
                case rm.RefuseSlots():
                    self.unfulfillable.append(command)
                case rm.AnnounceLoss(task_manager=worker) | rm.StopWorker(task_manager=worker):
                    if isinstance(command, rm.AnnounceLoss):
                        self.losses.append(command)
                    self.starting.pop(worker, None)
                    self.up.discard(worker)
                    self.granted = {key: w for key, w in self.granted.items() if w != worker}
        return commands

    def want(self, job: str, *keys: str, profile: ResourceProfile = ANY_PROFILE) -> list[rm.ResourceCommand]:
        requests = tuple(SlotRequest(key=key, group="g", profile=profile) for key in keys)
        return self.do(rm.SlotsWanted(job=JobId(job), requests=requests))

    def give_back(self, job: str, *keys: str) -> list[rm.ResourceCommand]:
        gone = {(job, key) for key in keys} or {key for key in self.granted if key[0] == job}
        self.granted = {key: w for key, w in self.granted.items() if key not in gone}
        return self.do(rm.SlotsReturned(job=JobId(job), requests=keys))

    def join(
        self, worker: str, *, host: str = "h", slots: int = 1, profile: ResourceProfile = ANY_PROFILE
    ) -> list[rm.ResourceCommand]:
        asked = self.starting.pop(worker, None)
        if asked is not None:
            slots, profile = asked.slots, asked.profile
        self.up.add(worker)
        return self.do(
            rm.WorkerRegistered(
                task_manager=TaskManagerId(worker),
                address=f"at:{worker}",
                slots=slots,
                host=host,
                profile=profile,
                now_ms=self.now_ms,
            )
        )

    def join_all(self, host: str = "h") -> None:
        while self.starting:
            self.join(next(iter(self.starting)), host=host)

    def end(self, worker: str, *, host: str = "", hopeless: bool = False) -> list[rm.ResourceCommand]:
        """`host`: as reported by its driver."""
        return self.do(
            rm.WorkerEnded(
                task_manager=TaskManagerId(worker),
                reason="killed",
                host=host,
                now_ms=self.now_ms,
                hopeless=hopeless,
            )
        )

    def probed(self, worker: str, outcome: rm.ProbeOutcome) -> list[rm.ResourceCommand]:
        self.probing.discard(worker)
        event = rm.WorkerProbed(
            task_manager=TaskManagerId(worker), outcome=outcome, reason="refused", now_ms=self.now_ms
        )
        return self.do(event)

    def tick(self, later_ms: int = 0) -> list[rm.ResourceCommand]:
        self.now_ms += later_ms
        return self.do(rm.Tick(self.now_ms))

    def beat(self) -> None:
        for worker in self.up:
            self.do(rm.WorkerHeartbeat(task_manager=TaskManagerId(worker), now_ms=self.now_ms))

    def pass_time(self, ms: int) -> None:
        for _ in range(ms // 250):
            self.beat()
            self.tick(250)


def names(commands: list[rm.ResourceCommand]) -> list[str]:
    return [type(command).__name__ for command in commands]


class TestProfiles:
    @pytest.mark.parametrize(
        ("slot", "wanted", "certain"),
        [
            pytest.param(BIG, SMALL, BIG, id="as the worker reports"),
            pytest.param(ANY_PROFILE, BIG, BIG, id="a worker that does not tell: what was asked for"),
            pytest.param(ANY_PROFILE, ANY_PROFILE, ANY_PROFILE, id="nothing is known"),
        ],
    )
    def test_a_lease_tells_what_its_slot_has(
        self, slot: ResourceProfile, wanted: ResourceProfile, certain: ResourceProfile
    ) -> None:
        cluster = Cluster(active=False)
        cluster.join("w", profile=slot)
        granted = [c for c in cluster.want("job", "k", profile=wanted) if isinstance(c, rm.GrantSlots)]
        assert [lease.profile for command in granted for lease in command.leases] == [certain]

    @pytest.mark.parametrize(
        ("slot", "wanted", "strict", "expected"),
        [
            (ANY_PROFILE, ANY_PROFILE, True, True),
            (SMALL, ANY_PROFILE, True, True),
            (SMALL, SMALL, True, True),
            (SMALL, BIG, False, False),
            (ANY_PROFILE, BIG, False, True),
            (ANY_PROFILE, BIG, True, False),
            (SMALL, ResourceProfile(cpu_cores=1), True, False),
            (SMALL, ResourceProfile(cpu_cores=1), False, True),
            (ResourceProfile(cpu_cores=2, memory_mb=256), ResourceProfile(cpu_cores=1), True, True),
        ],
    )
    def test_what_serves_what(
        self, slot: ResourceProfile, wanted: ResourceProfile, strict: bool, expected: bool
    ) -> None:
        assert serves(slot, wanted, strict=strict) is expected

    def test_a_worker_is_started_with_the_profile_that_is_needed(self) -> None:
        cluster = Cluster(slots=2, slot=SMALL)
        cluster.want("a", "0", profile=BIG)
        cluster.want("a", "1", "2")
        started = [(worker.slots, worker.profile) for worker in cluster.starting.values()]
        assert started == [(1, BIG), (2, SMALL)], "later requests do not count on the big one"
        cluster.join_all()
        assert len(cluster.granted) == 3

    def test_requests_that_tell_nothing_share_what_is_coming(self) -> None:
        cluster = Cluster(slots=2)
        cluster.want("a", "0", "1", "2")
        assert len(cluster.starting) == 2

    def test_the_smallest_slot_that_is_enough_is_given(self) -> None:
        cluster = Cluster(active=False)
        cluster.join("big", profile=BIG)
        cluster.join("small", profile=SMALL)
        cluster.want("a", "0")
        cluster.want("a", "1", profile=BIG)
        assert cluster.granted == {("a", "0"): "small", ("a", "1"): "big"}

    @pytest.mark.parametrize(
        ("first", "then"),
        [
            pytest.param(BIG, ANY_PROFILE, id="a big slot is not for a request that tells nothing"),
            pytest.param(BIG, SMALL, id="nor for one that a usual slot is enough for"),
            pytest.param(HUGE, BIG, id="nor one made to a larger measure"),
        ],
    )
    def test_a_started_worker_serves_only_what_it_would_be_started_for(
        self, first: ResourceProfile, then: ResourceProfile
    ) -> None:
        cluster = Cluster(slot=SMALL)
        cluster.want("a", "0", profile=first)
        cluster.join_all()
        cluster.give_back("a")
        assert names(cluster.want("b", "0", profile=then)) == ["StartWorker"]
        cluster.want("c", "0", profile=first)
        assert list(cluster.granted) == [("c", "0")], "it is still free"

    def test_a_request_that_must_wait_holds_no_other_back(self) -> None:
        cluster = Cluster(active=False)
        cluster.join("small", profile=SMALL)
        cluster.want("a", "0", profile=BIG)
        cluster.want("b", "0")
        assert cluster.granted == {("b", "0"): "small"}

    def test_who_waits_hears_of_a_worker_that_did_not_come_up(self) -> None:
        cluster = Cluster(slots=2)
        cluster.want("a", "0")
        cluster.join_all()
        for job in ("b", "c", "d"):
            cluster.want(job, "0")
        (worker,) = cluster.starting
        cluster.give_back("c", "0")
        cluster.end(worker)
        assert [(loss.task_manager, loss.jobs) for loss in cluster.losses] == [(worker, ("d",))]

    def test_what_no_worker_can_have_is_answered_at_once(self) -> None:
        cluster = Cluster(largest=BIG)
        cluster.want("a", "0", "1", profile=HUGE)
        (answer,) = cluster.unfulfillable
        assert (answer.job, [r.key for r in answer.requests], answer.permanent) == ("a", ["0", "1"], True)
        assert "2 slots of slot sharing group 'g' with 10000 MiB of memory each" in answer.reason
        assert "at most 1024 MiB" in answer.reason
        assert not cluster.starting
        assert not cluster.machine._requests

    def test_a_worker_in_the_way_makes_room(self) -> None:
        cluster = Cluster(max_workers=1, slot=SMALL)
        cluster.want("a", "0")
        cluster.join_all()
        cluster.give_back("a")
        assert names(cluster.want("b", "0", profile=BIG)) == ["StopWorker", "StartWorker"]
        cluster.join_all()
        assert list(cluster.granted) == [("b", "0")]

    def test_a_worker_that_is_used_stays(self) -> None:
        cluster = Cluster(max_workers=1, slot=SMALL)
        cluster.want("a", "0")
        cluster.join_all()
        assert cluster.want("b", "0", profile=BIG) == []

    def test_the_text_of_a_timeout_says_how_many_of_which(self) -> None:
        missing = [SlotRequest(key=str(i), group="big", profile=BIG) for i in range(2)]
        text = missing_slots_text([*missing, SlotRequest(key="x", group="default")], 5, 300_000)
        assert text.startswith("3 of 5 slots are missing after 300000 ms (slot.request.timeout): ")
        assert "2 slots of slot sharing group 'big' with 1024 MiB of memory each, 1 slot of slot" in text


class TestFairness:
    def test_a_request_that_lost_its_lease_keeps_its_age(self) -> None:
        cluster = Cluster(max_workers=1)
        cluster.want("old", "0")
        cluster.join_all()
        cluster.want("young", "0")
        (worker,) = cluster.up
        cluster.end(worker)
        cluster.want("old", "0")
        cluster.join_all()
        assert list(cluster.granted) == [("old", "0")]

    def test_one_that_takes_its_place_has_its_age(self) -> None:
        cluster = Cluster(max_workers=1)
        cluster.want("old", "0")
        cluster.join_all()
        cluster.want("young", "0")
        (worker,) = cluster.up
        cluster.end(worker)
        again = SlotRequest(key="0:2", group="g", replaces="0")
        for _ in range(2):  # repeated, it is the same
            cluster.do(rm.SlotsWanted(job=JobId("old"), requests=(again,)))
        cluster.join_all()
        assert list(cluster.granted) == [("old", "0:2")]
        cluster.give_back("old", "0:2")
        assert list(cluster.granted) == [("young", "0")]

    def test_an_old_bulk_gets_every_slot_before_a_younger_one(self) -> None:
        cluster = Cluster(active=False)
        cluster.want("bulk", "0", "1", "2")
        cluster.want("late", "0")
        for name in ("x", "y", "z"):
            cluster.join(name)
        assert {job for job, _ in cluster.granted} == {"bulk"}
        cluster.join("w")
        assert ("late", "0") in cluster.granted


class TestPassive:
    def test_nothing_is_started_or_released(self) -> None:
        cluster = Cluster(active=False)
        assert cluster.want("a", "0") == []
        cluster.join("x")
        cluster.give_back("a")
        cluster.pass_time(20_000)
        assert cluster.up == {"x"}

    def test_requests_that_are_too_big_for_all_fail_once_the_cluster_has_come_together(self) -> None:
        cluster = Cluster(active=False, startup_ms=4_000)
        cluster.want("a", "0", profile=BIG)
        cluster.join("small", profile=SMALL)
        cluster.pass_time(3_750)
        assert not cluster.unfulfillable
        cluster.pass_time(250)
        (answer,) = cluster.unfulfillable
        assert not answer.permanent
        assert "their slots have 256 MiB of memory (1 worker)" in answer.reason
        cluster.want("a", "1", profile=BIG)
        assert len(cluster.unfulfillable) == 2, "later ones at once"

    def test_without_any_worker_requests_wait(self) -> None:
        cluster = Cluster(active=False, startup_ms=0)
        cluster.want("a", "0", profile=BIG)
        cluster.pass_time(1_000)
        assert not cluster.unfulfillable
        cluster.join("big", profile=BIG)
        assert ("a", "0") in cluster.granted


class TestProbes:
    def ready(self) -> tuple[Cluster, str]:
        cluster = Cluster(probe_interval_ms=1_000, unreachable_after=2)
        cluster.want("a", "0")
        cluster.join_all()
        (worker,) = cluster.up
        return cluster, worker

    def test_one_at_a_time_and_at_intervals(self) -> None:
        cluster, worker = self.ready()
        assert cluster.tick(999) == []
        assert names(cluster.tick(1)) == ["ProbeWorker"]
        assert cluster.tick(5_000) == [], "the first one is still under way"
        cluster.probed(worker, rm.ProbeOutcome.ANSWERED)
        assert cluster.probing == {worker}

    def test_nobody_at_its_address_twice_in_a_row_is_a_loss(self) -> None:
        cluster, worker = self.ready()
        assert cluster.probed(worker, rm.ProbeOutcome.UNREACHABLE) == []
        cluster.probed(worker, rm.ProbeOutcome.ANSWERED)
        cluster.probed(worker, rm.ProbeOutcome.UNREACHABLE)
        commands = cluster.probed(worker, rm.ProbeOutcome.UNREACHABLE)
        assert names(commands)[:2] == ["AnnounceLoss", "StopWorker"]
        assert "heartbeat.rpc-failure-threshold" in cluster.losses[-1].reason

    def test_one_that_only_talks_and_never_answers_is_given_up_after_the_timeout(self) -> None:
        cluster, worker = self.ready()
        for _ in range(3):
            cluster.pass_time(3_000)
            cluster.probed(worker, rm.ProbeOutcome.SILENT)
        assert cluster.up
        cluster.pass_time(2_000)
        assert not cluster.up
        assert "has not answered" in cluster.losses[-1].reason


WORKERS = 2  # few, so that jobs contend for them
JOBS = st.sampled_from(["a", "b", "c"])
KEYS = st.integers(0, 3)
PROFILES = st.sampled_from([ANY_PROFILE, SMALL, BIG, HUGE])


class Supply(RuleBasedStateMachine):
    """Any event, any order, repeated and invented ones too. The model: what every job asks for."""

    active = True

    def __init__(self) -> None:
        super().__init__()
        block = BlockRules(failures=2, window_ms=5_000, block_ms=1_000, elsewhere=self.active)
        self.cluster = Cluster(
            slots=2,
            active=self.active,
            max_workers=WORKERS if self.active else None,
            slot=SMALL,
            largest=BIG,
            startup_ms=2_000,
            probe_interval_ms=500,
            block=block,
        )
        self.wanted: dict[tuple[str, str], ResourceProfile] = {}
        self.names = count()

    @rule(job=JOBS, keys=st.sets(KEYS, min_size=1), profile=PROFILES)
    def want(self, job: str, keys: set[int], profile: ResourceProfile) -> None:
        for key in sorted(keys):
            wanted = self.wanted.setdefault((job, str(key)), profile)
            self.cluster.want(job, str(key), profile=wanted)
        self.forget_refused()

    @rule(job=JOBS, key=st.none() | KEYS)
    def give_back(self, job: str, key: int | None) -> None:
        keys = () if key is None else (str(key),)
        self.cluster.give_back(job, *keys)
        self.wanted = {
            request: profile
            for request, profile in self.wanted.items()
            if request[0] != job or (keys and request[1] not in keys)
        }

    @rule(choice=st.integers(0, 9))
    def give_back_one_that_is_held(self, choice: int) -> None:
        held = sorted(self.cluster.granted)
        if held:
            job, key = held[choice % len(held)]
            del self.wanted[job, key]
            self.cluster.give_back(job, key)

    @initialize()
    def first_worker(self) -> None:
        if not self.active:
            self.cluster.join(f"w{next(self.names)}", host="h1", profile=BIG)

    @rule(choice=st.integers(0, 9), host=st.sampled_from(["h1", "h2"]), profile=PROFILES)
    def join(self, choice: int, host: str, profile: ResourceProfile) -> None:
        starting = list(self.cluster.starting)
        if starting:
            self.cluster.join(starting[choice % len(starting)], host=host)
        elif not self.active and len(self.cluster.up) < WORKERS:
            self.cluster.join(f"w{next(self.names)}", host=host, slots=1 + choice % 2, profile=profile)

    @rule(choice=st.integers(0, 9))
    def end(self, choice: int) -> None:
        known = [*sorted(self.cluster.starting), *sorted(self.cluster.up), "stranger"]
        self.cluster.end(known[choice % len(known)])

    @rule(choice=st.integers(0, 9), outcome=st.sampled_from(list(rm.ProbeOutcome)))
    def probed(self, choice: int, outcome: rm.ProbeOutcome) -> None:
        known = [*sorted(self.cluster.up), "stranger"]
        self.cluster.probed(known[choice % len(known)], outcome)

    @rule(later_ms=st.sampled_from([0, 250, 1_000, 4_000, 12_000]), alive=st.booleans())
    def tick(self, later_ms: int, alive: bool) -> None:
        self.cluster.now_ms += later_ms
        if alive:
            self.cluster.beat()
        self.cluster.tick()
        self.forget_refused()

    @rule(choice=st.integers(0, 9), wait=st.booleans(), ends=st.booleans())
    def drain(self, choice: int, wait: bool, ends: bool) -> None:
        known = [*sorted(self.cluster.starting), *sorted(self.cluster.up), "stranger"]
        worker = TaskManagerId(known[choice % len(known)])
        self.cluster.do(
            rm.DrainWanted(
                task_manager=worker, now_ms=self.cluster.now_ms, wait=wait, ends=ends, lasts_ms=2_000
            )
        )

    @rule(choice=st.integers(0, 9))
    def replace(self, choice: int) -> None:
        """A job requests another slot for one that it has."""
        held = sorted(self.cluster.granted)
        if held:
            job, key = held[choice % len(held)]
            by, profile = f"{key}+", self.wanted[job, key]
            self.wanted.setdefault((job, by), profile)
            request = SlotRequest(key=by, group="g", profile=self.wanted[job, by], replaces=key)
            self.cluster.do(rm.SlotsWanted(job=JobId(job), requests=(request,)))
            self.forget_refused()

    @invariant()
    def none_that_is_drained_stays_without_leases(self) -> None:
        assert not any(view.draining and not view.leased for view in self.cluster.machine.view())

    def forget_refused(self) -> None:
        for answer in self.cluster.unfulfillable:
            for request in answer.requests:
                self.wanted.pop((answer.job, request.key), None)
        self.cluster.unfulfillable.clear()

    @invariant()
    def nothing_is_lost(self) -> None:
        """Every request is open, leased, or lost with a worker whose loss was announced to its job."""
        self.forget_refused()
        assert set(self.cluster.granted) <= set(self.wanted)
        announced = {job for loss in self.cluster.losses for job in loss.jobs}
        missing = len(self.wanted) - len(self.cluster.granted) - len(self.cluster.machine._requests)
        assert missing >= 0
        assert missing == 0 or announced

    @invariant()
    def no_slot_is_free_for_a_request_that_waits(self) -> None:
        free = [view for view in self.cluster.machine.view() if view.free and not view.blocked_ms]
        free = [view for view in free if view.task_manager in self.cluster.up and not view.draining]
        waiting = self.cluster.machine._requests
        for open_ in waiting:
            assert not any(self.is_given(v.profile, open_.request.profile) for v in free)

    def is_given(self, slot: ResourceProfile, wanted: ResourceProfile) -> bool:
        """Active: slots are as they would be started for the request, and no bigger ones."""
        if not self.active:
            return serves(slot, wanted, strict=False)
        return slot == (SMALL if serves(SMALL, wanted, strict=True) else profile_for(wanted, SMALL))

    def teardown(self) -> None:
        """When nothing goes wrong any more, everything that can be served is served."""
        cluster = self.cluster
        for _ in range(200):
            for (job, key), profile in self.wanted.items():
                if (job, key) not in cluster.granted:
                    cluster.want(job, key, profile=profile)
            self.forget_refused()
            if not self.active and len(cluster.up) < 16:
                cluster.join(f"w{next(self.names)}", host="h3", slots=1, profile=HUGE)
            for worker in list(cluster.starting):
                cluster.join(worker, host="h3")
            for worker in list(cluster.probing):
                cluster.probed(worker, rm.ProbeOutcome.ANSWERED)
            cluster.beat()
            cluster.tick(250)
        used = len(cluster.up)
        assert not cluster.machine._requests or (self.active and used == WORKERS)
        served = set(cluster.granted)
        if not self.active:
            assert served == set(self.wanted)


class PassiveSupply(Supply):
    active = False


TestActiveSupply = Supply.TestCase
TestPassiveSupply = PassiveSupply.TestCase
TestActiveSupply.settings = hypothesis_settings(max_examples=200, stateful_step_count=50, deadline=None)
TestPassiveSupply.settings = TestActiveSupply.settings


@pytest.mark.parametrize(
    ("many_machines", "starts"), [(False, 1), (True, 3)], ids=["on one machine", "on many machines"]
)
def test_nobody_waits_for_workers_that_cannot_start(many_machines: bool, starts: int) -> None:
    cluster = Cluster(block=BlockRules(elsewhere=many_machines))
    cluster.want("a", "b")
    for left in reversed(range(starts)):
        assert cluster.unfulfillable == []
        cluster.end(next(iter(cluster.starting)), hopeless=True)
        cluster.now_ms += 60_000
        cluster.tick()
        assert len(cluster.starting) == (1 if left else 0)
    refused = cluster.unfulfillable[0]
    assert (refused.reason, refused.permanent) == ("no worker can start: killed", True)
    cluster.tick(1)
    assert len(cluster.unfulfillable) == 1, "nothing is open any more"


def test_workers_that_come_up_are_worth_waiting_for() -> None:
    cluster = Cluster(max_workers=2)
    cluster.want("a", "1", "2")
    first, second = cluster.starting
    cluster.join(first)
    cluster.end(second, hopeless=True)
    assert cluster.unfulfillable == []
    cluster.now_ms += 60_000
    cluster.tick()
    assert len(cluster.starting) == 1
