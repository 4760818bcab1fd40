"""A call that ends before one of its lines, and committers that do so now and then."""

from __future__ import annotations

import os
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from unistream.base.errors import OutcomeUnknown
from unistream.base.ids import CheckpointId
from unistream.port.sink import CommitOutcome, CommitRequest, CommitResult, JointCommitter
from unistream.testing.sim.faults import Faults
from unistream.testing.sim.world import World
from unistream.testing.simulation.commits import cut_before, interrupted

HERE = [os.path.dirname(__file__)]
REQUEST = CommitRequest(CheckpointId(7), (b"a", b"b", b"c"))
PERMIT: Any = SimpleNamespace(checkpoint_id=7)


def steps(done: list[str]) -> str:
    done.append("first")
    for name in ("second", "third"):
        done.append(name)
    return "through"


@pytest.mark.parametrize(
    ("line", "done"),
    [
        pytest.param(1, [], id="before all"),
        pytest.param(2, ["first"], id="before the loop"),
        pytest.param(4, ["first", "second"], id="before the second round"),
        pytest.param(7, ["first", "second", "third"], id="before it returns"),
    ],
)
def test_a_call_ends_before_a_line(line: int, done: list[str]) -> None:
    had: list[str] = []
    ran = cut_before(line, HERE, partial(steps, had))
    assert had == done
    assert ran.place.startswith(os.path.basename(__file__) + ":")
    assert ran.result is None
    assert ran.lines == line - 1


@pytest.mark.parametrize("line", [0, 100], ids=["not wanted", "it has fewer lines"])
def test_a_call_comes_through(line: int) -> None:
    had: list[str] = []
    ran = cut_before(line, HERE, partial(steps, had))
    assert (ran.place, ran.result, had) == ("", "through", ["first", "second", "third"])
    assert ran.lines == 7


def test_lines_elsewhere_do_not_count() -> None:
    ran = cut_before(1, ["/nowhere"], partial(steps, []))
    assert (ran.lines, ran.result) == (0, "through")


def test_what_a_call_raises_goes_on_and_tracing_is_as_before() -> None:
    def trace(*_: object) -> None: ...

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(KeyError):
            cut_before(50, HERE, lambda: {"a": 1}["missing"])
        assert sys.gettrace() is trace
        cut_before(1, HERE, partial(steps, []))
        assert sys.gettrace() is trace
    finally:
        sys.settrace(former)


class One:
    """Commits what it is given, one by one."""

    def __init__(self) -> None:
        self.had: list[bytes] = []

    def open(self, context: object) -> None:
        """Needs nothing."""

    def commit(self, permit: object, request: CommitRequest) -> CommitResult:
        for payload in request.committables:
            self.had.append(payload)
        return CommitResult(CommitOutcome.COMMITTED, len(request.committables))

    def close(self) -> None:
        """Holds nothing."""


class Joint(One):
    def commit_all(self, permit: object, requests: list[CommitRequest]) -> CommitResult:
        return self.commit(permit, requests[0])


def made(kind: type[One], unknown: float, seed: int = 1) -> tuple[One, Any, World]:
    world, inner = World(seed), kind()
    world.faults = Faults(commit_unknown=unknown)
    site: Any = SimpleNamespace(world=world, commit_lines={})
    committer = interrupted(lambda: inner, object(), site)()
    committer.open(SimpleNamespace(sink_uid="out"))
    return inner, committer, world


@pytest.mark.parametrize("kind", [One, Joint])
def test_without_faults_it_is_the_users_committer(kind: type[One]) -> None:
    inner, committer, world = made(kind, 0.0)
    assert committer.commit(PERMIT, REQUEST) == CommitResult(CommitOutcome.COMMITTED, 3)
    assert inner.had == [b"a", b"b", b"c"]
    assert isinstance(committer, JointCommitter) is (kind is Joint)
    assert world.story() == []


@pytest.mark.parametrize("kind", [One, Joint])
def test_every_length_of_a_commit_comes_to_pass(kind: type[One]) -> None:
    seen = set()
    for seed in range(60):
        inner, committer, world = made(kind, 1.0, seed)
        joint = kind is Joint
        commit = (
            partial(committer.commit_all, PERMIT, [REQUEST])
            if joint
            else partial(committer.commit, PERMIT, REQUEST)
        )
        with pytest.raises(OutcomeUnknown, match="the commit by checkpoint 7 is "):
            commit()
        seen.add(len(inner.had))
        [line] = world.story()
        assert "FAULT: commit of out, by checkpoint 7, is " in line
    assert seen == {0, 1, 2, 3}


def test_it_is_cut_off_within_what_commits_were_long() -> None:
    inner, committer, world = made(One, 0.0)
    committer.commit(PERMIT, REQUEST)
    world.faults = Faults(commit_unknown=1.0)
    through = 0
    for _ in range(100):
        inner.had.clear()
        with pytest.raises(OutcomeUnknown):
            committer.commit(PERMIT, REQUEST)
        through += len(inner.had) == 3
    assert 5 < through < 60, "neither always the whole, nor never"


def test_no_committer_stays_none() -> None:
    site: Any = SimpleNamespace(world=World(1), commit_lines={})
    assert interrupted(lambda: None, object(), site)() is None
