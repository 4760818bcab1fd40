"""What a log of snapshots means for a stream: pure, without a table."""

from __future__ import annotations

import random
from typing import Any

import pytest

from unistream.base.errors import ConfigError
from unistream.connector.iceberg.source_log import History, SnapshotFacts, check_passable, current_at


def history(*chain: tuple[int, int | None], head: int | None) -> History:
    """Of (snapshot, parent); the number of a snapshot is its time in seconds, too."""
    snapshots = {
        id_: SnapshotFacts(id=id_, parent=parent, sequence=id_, at_ms=id_ * 1_000, operation="append")
        for id_, parent in chain
    }
    return History(where="table t", snapshots=snapshots, head=head)


LINE = ((1, None), (2, 1), (3, 2), (4, 3))
EMPTY = history(head=None)
WHOLE = history(*LINE, head=4)
EXPIRED = history(*LINE[2:], head=4)
SET_BACK = history(*LINE, head=2)
BRANCHED = history(*LINE, (5, 2), head=5)
REPLACED = history(*LINE, (5, None), head=5)


@pytest.mark.parametrize(
    ("given", "position", "expected"),
    [
        pytest.param(WHOLE, None, [1, 2, 3, 4], id="all that ever were"),
        pytest.param(WHOLE, 2, [3, 4], id="those behind the position"),
        pytest.param(WHOLE, 4, [], id="nothing is new"),
        pytest.param(EMPTY, None, [], id="a table without rows"),
        pytest.param(BRANCHED, 2, [5], id="those of the branch only"),
        pytest.param(EXPIRED, 3, [4], id="what was read has expired"),
        pytest.param(EXPIRED, 2, [3, 4], id="the position itself has expired"),
        pytest.param(
            EXPIRED, 1, "snapshot 1, .* has expired, and others behind it may", id="one expired unread"
        ),
        pytest.param(EXPIRED, None, "its first snapshots have expired, .* left is 3 of", id="the first ones"),
        pytest.param(SET_BACK, 4, r"snapshot 4, .* not among those .* newest one \(2\)", id="set back"),
        pytest.param(
            BRANCHED, 4, "snapshot 4, .* was set back or replaced", id="set back, and written again"
        ),
        pytest.param(REPLACED, 4, "snapshot 4, .* was set back or replaced", id="replaced"),
        pytest.param(EMPTY, 4, "snapshot 4, .* was set back or replaced", id="set back to nothing"),
        pytest.param(WHOLE, 9, "snapshot 9, .* or the branch was set back", id="an unknown position"),
    ],
)
def test_what_follows_a_position(given: History, position: int | None, expected: Any) -> None:
    if isinstance(expected, list):
        assert [one.id for one in given.following(position)] == expected
    else:
        with pytest.raises(ConfigError, match=f"table t: .*{expected}"):
            given.following(position)


@pytest.mark.parametrize(
    ("given", "at_s", "expected"),
    [
        pytest.param(WHOLE, 0, None, id="since before the first one"),
        pytest.param(WHOLE, 3, 2, id="since a commit"),
        pytest.param(WHOLE, 3.5, 3, id="since after it"),
        pytest.param(WHOLE, 9, 4, id="since after the last"),
        pytest.param(EXPIRED, 4, 3, id="since a commit that is left"),
        pytest.param(EXPIRED, 3, "committed since .* oldest snapshot that is left is 3", id="maybe expired"),
        pytest.param(EMPTY, 3, None, id="a table without rows"),
    ],
)
def test_the_position_of_a_time(given: History, at_s: float, expected: Any) -> None:
    if isinstance(expected, str):
        with pytest.raises(ConfigError, match=expected):
            given.since(int(at_s * 1_000))
    else:
        assert given.since(int(at_s * 1_000)) == expected


@pytest.mark.parametrize(
    ("given", "snapshot", "expected"),
    [
        pytest.param(WHOLE, 3, 2, id="one of the branch"),
        pytest.param(WHOLE, 1, None, id="the first one"),
        pytest.param(BRANCHED, 3, r"snapshot 3 is not among those .* \(5\)", id="one of another branch"),
        pytest.param(EXPIRED, 2, "has no snapshot 2: it has expired", id="one that has expired"),
    ],
)
def test_the_position_before_a_snapshot(given: History, snapshot: int, expected: Any) -> None:
    if isinstance(expected, str):
        with pytest.raises(ConfigError, match=expected):
            given.before(snapshot)
    else:
        assert given.before(snapshot) == expected


def test_what_was_the_newest_snapshot_at_a_time() -> None:
    """A table that was set back has one twice."""
    log = [(10, 1), (20, 2), (30, 1), (40, 3)]
    assert [current_at("t", log, at) for at in (10, 19, 20, 30, 39, 40, 99)] == [1, 1, 2, 1, 1, 3, 3]
    with pytest.raises(ConfigError, match=r"not known as of 1970-01-01T00:00:00.009.* first .* is 1 of"):
        current_at("t", log, 9)


APPEND, DELETE, REWRITE = {"adds": 1, "removes": 0}, {"adds": 0, "removes": 1}, {"adds": 1, "removes": 1}


@pytest.mark.parametrize(
    ("files", "ignored", "refused"),
    [
        pytest.param(APPEND, (), "", id="added rows"),
        pytest.param({"adds": 0, "removes": 0}, (), "", id="nothing"),
        pytest.param(DELETE, (), "deletes rows.*ignore_deletes=True", id="deleted rows"),
        pytest.param(DELETE, ("ignore_deletes",), "", id="deletes are passed"),
        pytest.param(DELETE, ("ignore_changes",), "", id="a delete is a change"),
        pytest.param(REWRITE, (), "rewrites rows.*ignore_changes=True", id="rewritten rows"),
        pytest.param(REWRITE, ("ignore_deletes",), "rewrites rows", id="a rewrite is no delete"),
        pytest.param(REWRITE, ("ignore_changes",), "", id="changes are passed"),
    ],
)
def test_whether_a_stream_passes_a_snapshot(
    files: dict[str, int], ignored: tuple[str, ...], refused: str
) -> None:
    def check() -> None:
        options = {name: name in ignored for name in ("ignore_deletes", "ignore_changes")}
        check_passable("table t", WHOLE.at(3), **files, **options)

    if refused:
        with pytest.raises(ConfigError, match=rf"table t, snapshot 3 \(append\) {refused}"):
            check()
    else:
        check()


class Log:
    """A table of which each snapshot has a row of its own, and what a reader has seen of it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.chain: list[int] = []  # of the branch, from the very first one on
        self.known: dict[int, SnapshotFacts] = {}
        self.made = 0

    def add(self) -> None:
        self.made += 1
        parent = self.chain[-1] if self.chain else None
        self.known[self.made] = SnapshotFacts(
            id=self.made, parent=parent, sequence=self.made, at_ms=self.made, operation="append"
        )
        self.chain.append(self.made)

    def expire(self) -> None:
        """Of old ones; the head stays."""
        old = self.chain[: self.rng.randrange(len(self.chain))] if self.chain else []
        self.known = {id_: one for id_, one in self.known.items() if id_ not in old}

    def set_back(self) -> None:
        left = [id_ for id_ in self.chain if id_ in self.known]
        if left:
            self.chain = self.chain[: self.chain.index(self.rng.choice(left)) + 1]

    @property
    def history(self) -> History:
        return History(where="t", snapshots=self.known, head=self.chain[-1] if self.chain else None)


@pytest.mark.parametrize("seed", range(40))
def test_a_reader_has_each_snapshot_of_its_branch_once_or_is_refused(seed: int) -> None:
    """Whatever is appended, expired and set back between its looks. The oracle is the chain itself."""
    rng = random.Random(seed)
    log = Log(rng)
    position: int | None = None
    for _ in range(60):
        rng.choice([log.add, log.add, log.add, log.expire, log.set_back])()
        if rng.random() < 0.5:
            continue
        at = log.chain.index(position) + 1 if position in log.chain else 0 if position is None else None
        unread = None if at is None else log.chain[at:]
        if unread is None or any(id_ not in log.known for id_ in unread):
            with pytest.raises(ConfigError):
                log.history.following(position)
            position = log.history.head  # the job starts again
        else:
            assert [one.id for one in log.history.following(position)] == unread
            position = unread[-1] if unread else position
