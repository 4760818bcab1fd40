"""Pictures of a job: taken by its own thread, and taken again only after something may have changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from unistream.base.clock import SystemClock
from unistream.core.contract import JobView
from unistream.master.job.pictures import Picture, Pictures
from unistream.master.loop.loop import LoopMailbox
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.graph import JobGraph


@dataclass
class Counting:
    """A machine whose restarts are the events that it was given; `looks`: how often somebody looked."""

    events: int = 0
    looks: int = 0

    def view(self) -> JobView:
        self.looks += 1
        graph = JobGraph(name="", vertices=(), edges=())
        return JobView(
            graph=graph, state="RUNNING", restarts=self.events, attempts=(), failure=None, wanted=graph
        )

    def checkpoints(self, now_ms: int, wall_ms: int) -> CheckpointsInfo:
        return CheckpointsInfo()


class OneThread(LoopMailbox[Any, Any]):
    """A loop whose owner works off what is queued as soon as somebody waits for a picture."""

    is_own_thread = False

    def start(self, begin: object, step: object) -> None: ...

    def join(self, timeout_s: float) -> bool:
        return True

    def post(self, event: Any) -> None:
        super().post(event)
        if isinstance(event, Picture):
            self.owner.work()

    owner: Job


@dataclass
class Job:
    machine: Counting = field(default_factory=Counting)
    loop: OneThread = field(default_factory=lambda: OneThread(SystemClock()))

    def __post_init__(self) -> None:
        self.loop.owner = self
        self.pictures = Pictures(self.machine, SystemClock(), self.loop)

    def work(self) -> None:
        """All that is queued, as the loop of a job does."""
        while (event := self.loop.take_waiting()) is not None:
            if isinstance(event, Picture):
                event.take()
                event.taken.set()
            else:
                self.changes()

    def changes(self) -> None:
        self.pictures.outdate()
        self.machine.events += 1

    def reads(self) -> tuple[int, int]:
        """The restarts that a caller sees, and for how many looks at the machine."""
        before = self.machine.looks
        return self.pictures.new_view().restarts, self.machine.looks - before


def posts(job: Job) -> None:
    job.loop.post("event")


def posts_and_works(job: Job) -> None:
    job.loop.post("event")
    job.work()


def nothing(job: Job) -> None: ...


def asks_for_checkpoints(job: Job) -> None:
    job.pictures.new_checkpoints()


@pytest.mark.parametrize(
    ("happens", "seen", "looks"),
    [
        pytest.param(nothing, 0, 0, id="nothing: the last picture is the newest"),
        pytest.param(posts, 1, 1, id="an event that waits is decided on first"),
        pytest.param(posts_and_works, 1, 1, id="an event that was decided on"),
        pytest.param(Job.changes, 1, 1, id="a timer, which nobody has posted"),
        pytest.param(asks_for_checkpoints, 0, 1, id="another picture, which was posted, too"),
    ],
)
def test_the_machine_is_looked_at_again_only_if_it_may_have_changed(
    happens: Any, seen: int, looks: int
) -> None:
    job = Job()
    assert job.reads() == (0, 1), "the first one is taken"
    happens(job)
    assert job.reads() == (seen, looks)
    assert job.reads() == (seen, 0)


def test_a_picture_with_an_event_behind_it_is_not_the_newest() -> None:
    job = Job()
    behind = Picture(lambda: None)

    def take() -> None:
        job.loop.post("late")
        job.pictures.take()

    behind.take = take
    job.loop.post(behind)
    assert job.reads() == (1, 1)
