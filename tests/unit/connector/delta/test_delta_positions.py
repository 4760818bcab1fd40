"""Which positions a version of a table has, from the commits of its log: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid
from unistream.connector.common import SEVERAL, owner_number
from unistream.connector.delta.positions import (
    POSITIONS_KEY,
    find_positions,
    owner_id,
    owners,
    positions_metadata,
)
from unistream.connector.delta.source_log import Commit, parse_commit
from unistream.model.positions import SourcePositions, encode_positions


def at(offset: int, name: str = "flights", uid: str = "in", origin: str = "id") -> SourcePositions:
    return SourcePositions(
        uid=OperatorUid(uid), connector="kafka", name=name, origin=origin, offsets={"0": offset}
    )


def commit(
    version: int, *actions: str, positions: Sequence[SourcePositions] = (), sink: str | None = "lake"
) -> Commit:
    """`sink` None: by another writer."""
    info = {"operation": "WRITE"}
    if sink is not None:
        info |= {"unistream.lineage": "L", "unistream.sink-uid": sink, **positions_metadata(positions)}
    text = ",".join(f'"{key}":{_quoted(value)}' for key, value in info.items())
    lines = [f'{{"commitInfo":{{{text}}}}}', *(ACTIONS[action] for action in actions)]
    return parse_commit("/t", version, "\n".join(lines).encode())


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'


ACTIONS = {
    "add": '{"add":{"path":"a","size":1,"dataChange":true}}',
    "remove": '{"remove":{"path":"a","dataChange":true}}',
    "compact": '{"add":{"path":"b","size":1,"dataChange":false}}',
    "drop": '{"remove":{"path":"a","dataChange":false}}',
    "txn": '{"txn":{"appId":"x","version":1}}',
    "metadata": '{"metaData":{"id":"i","schemaString":"{}"}}',
}
CREATED = commit(0, "metadata", sink=None)
MINE = owner_number("L", "lake")


def found(
    log: Sequence[Commit | None], held: Mapping[str, int] | None = None, name: str = "flights"
) -> SourcePositions:
    def of(version: int) -> Commit | None:
        return log[version]

    marks = {owner_id(at(0)): MINE} if held is None else held
    return find_positions("/t", len(log) - 1, of, connector="kafka", name=name, held=marks.get)


@pytest.mark.parametrize(
    "log",
    [
        pytest.param([CREATED, commit(1, "add", positions=[at(7)])], id="the newest commit has them"),
        pytest.param(
            [CREATED, commit(1, "add", positions=[at(3)]), commit(2, "add", positions=[at(7)])],
            id="the newest of two counts",
        ),
        pytest.param(
            [CREATED, commit(1, "add", positions=[at(7)]), commit(2, "drop", "compact", sink=None)],
            id="a compaction does not change the rows",
        ),
        pytest.param(
            [
                CREATED,
                commit(1, "add", positions=[at(7)]),
                commit(2, "metadata", sink=None),
                commit(3, "txn"),
            ],
            id="nor do properties and notes",
        ),
        pytest.param(
            [CREATED, commit(1, "add", sink=None), commit(2, "add", positions=[at(7)])],
            id="rows of another writer that came before are part of the history",
        ),
        pytest.param(
            [CREATED, commit(1, "add", positions=[at(2, name="other"), at(7)])],
            id="one of several sources",
        ),
        pytest.param(
            [None, None, commit(2, "add", positions=[at(7)]), commit(3, "compact", sink=None)],
            id="older commits were cleaned up",
        ),
    ],
)
def test_the_newest_change_of_rows_says_up_to_where_the_table_has_everything(
    log: list[Commit | None],
) -> None:
    assert found(log) == at(7)


@pytest.mark.parametrize(
    ("log", "why"),
    [
        pytest.param([CREATED], "since it has no rows", id="an empty table"),
        pytest.param(
            [None, None, commit(2, "compact", sink=None)],
            "the log of the last rows was cleaned up",
            id="the log is gone",
        ),
        pytest.param(
            [CREATED, commit(1, "add", sink=None)],
            "by another writer and has no positions",
            id="no sink of a job",
        ),
        pytest.param(
            [CREATED, commit(1, "add")],
            "by sink 'lake' of a job and has no positions",
            id="a sink without them",
        ),
        pytest.param(
            [CREATED, commit(1, "add", positions=[at(7)]), commit(2, "add", sink=None)],
            r"may have rows from behind .* \(version=1 of the history would have them\)",
            id="another writer came after it",
        ),
        pytest.param(
            [CREATED, commit(1, "add", positions=[at(7)]), commit(2, "remove", sink=None)],
            r"version=1 of the history",
            id="somebody deleted rows after it",
        ),
        pytest.param(
            [CREATED, commit(1, "add", positions=[at(7)]), commit(2, "add")],
            r"version=1 of the history",
            id="a checkpoint with rows in flight came after it",
        ),
        pytest.param(
            [CREATED, commit(1, "add", positions=[at(7, name="other")])],
            "has positions of kafka 'other', not of kafka 'flights'",
            id="another topic",
        ),
        pytest.param(
            [CREATED, commit(1, "add", positions=[at(7), at(3, uid="again")])],
            r"several sources of the job that writes it \('in' and 'again'\)",
            id="two sources of one topic",
        ),
    ],
)
def test_what_is_not_known_is_refused(log: list[Commit | None], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        found(log)


@pytest.mark.parametrize(
    ("held", "is_refused"),
    [
        pytest.param(MINE, False, id="only this sink"),
        pytest.param(None, False, id="the transaction has expired"),
        pytest.param(SEVERAL, True, id="several sinks"),
        pytest.param(owner_number("L", "other"), True, id="another sink"),
    ],
)
def test_positions_count_if_one_sink_alone_records_them(held: int | None, is_refused: bool) -> None:
    log = [CREATED, commit(1, "add", positions=[at(7)])]
    marks = {} if held is None else {owner_id(at(7)): held}
    if not is_refused:
        assert found(log, marks) == at(7)
        return
    with pytest.raises(ConfigError, match="several sinks have written rows of kafka 'flights'"):
        found(log, marks)


@pytest.mark.parametrize(
    ("held", "then"),
    [
        pytest.param(None, MINE, id="the first one"),
        pytest.param(MINE, MINE, id="the same one"),
        pytest.param(MINE + 1, SEVERAL, id="a second one"),
        pytest.param(SEVERAL, SEVERAL, id="that there are several is not forgotten"),
    ],
)
def test_a_commit_says_whether_another_sink_records_positions_of_the_same_source(
    held: int | None, then: int
) -> None:
    positions = [at(7), at(1, uid="again")]
    assert owners(positions, MINE, lambda _: held) == {"unistream/positions/kafka/flights/id": then}


def test_a_sink_without_positions_writes_nothing_about_them() -> None:
    assert owners([], MINE, lambda _: None) == {}
    assert positions_metadata([]) == {}
    assert positions_metadata([at(7)]) == {POSITIONS_KEY: encode_positions([at(7)])}


def test_unreadable_positions_name_the_version() -> None:
    bad = commit(1, "add", positions=[at(7)])
    bad.positions = "[1]"
    with pytest.raises(ConfigError, match="table /t, version 1: its positions of sources are unreadable"):
        found([CREATED, bad])
