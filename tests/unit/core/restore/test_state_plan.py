"""What becomes of stored state in a changed pipeline: one row for each rule, and agreement with a restore."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, EdgeId, JobId, LineageId, OperatorUid, VertexId
from unistream.core.restore import (
    DeclaredList,
    DeclaredState,
    RestorePlan,
    StateOutcome,
    StoredState,
    assign_state,
    plan_restore,
    with_in_flight,
)
from unistream.core.restore.state_plan import StatePlan
from unistream.model.file_ref import FileRef
from unistream.model.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Ship
from unistream.model.in_flight import InFlightHandle, InFlightRun
from unistream.model.keyed_snapshot import StateKind
from unistream.model.own_state import OwnTable
from unistream.model.snapshot import (
    ListHandle,
    ListMode,
    Manifest,
    OperatorStateHandle,
    TaskSnapshot,
    VertexSnapshot,
)
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    StateOptions,
    StateTtl,
    ValueStateDescriptor,
)

UID = OperatorUid("counts")
USER = pa.schema([("user", pa.string())])
INT = ValueStateDescriptor("n", pa.int32())


def value(of: pa.DataType, name: str = "n", **options: Any) -> StateDescriptor:
    return ValueStateDescriptor(name, of, options=StateOptions(**options))


def kept(descriptor: StateDescriptor, keys: pa.Schema = USER) -> StoredState:
    return StoredState(
        name=descriptor.name,
        kind=descriptor.kind,
        schema=descriptor.table_schema(keys),
        pickled=descriptor.options.pickled,
        rows=7,
    )


def graph(*uids: str, **changes: Any) -> JobGraph:
    """Operators in a row, each in a vertex of its own."""
    vertices = tuple(
        JobVertex(
            id=VertexId(uid),
            name=uid,
            operators=(OperatorInfo(uid=OperatorUid(uid), name=uid, stateful=True),),
            parallelism=1,
            max_parallelism=changes.get("max_parallelism", 128),
            inputs=min(place, 1),
        )
        for place, uid in enumerate(uids)
    )
    edges = tuple(
        JobEdge(id=EdgeId(f"{a}-{b}"), source=VertexId(a), target=VertexId(b), ship=Ship.FORWARD)
        for a, b in pairwise(uids)
    )
    return JobGraph(name="job", vertices=vertices, edges=edges)


def manifest(
    *uids: str, finished: tuple[str, ...] = (), kind: SnapshotKind = SnapshotKind.SAVEPOINT
) -> Manifest:
    """Each operator has stored one list."""
    stored = ListHandle(name="list", mode=ListMode.SPLIT, count=1, inline=(b"x",))
    return Manifest(
        job=JobId("j"),
        job_name="job",
        lineage=LineageId("l"),
        checkpoint_id=CheckpointId(3),
        kind=kind,
        timestamp_ms=0,
        vertices=tuple(
            VertexSnapshot(
                vertex=VertexId(uid),
                name=uid,
                operators=(OperatorUid(uid),),
                parallelism=1,
                max_parallelism=128,
                subtasks=(TaskSnapshot(operators={OperatorUid(uid): OperatorStateHandle(lists=(stored,))}),),
                finished_subtasks=(0,) if uid in finished else (),
            )
            for uid in uids
        ),
    )


def states(
    stored: StoredState | None,
    declared: DeclaredState | None,
    *also: StoredState,
    allow_pickled: bool = False,
) -> list[tuple[str, StateOutcome, str]]:
    plan = plan_restore(
        manifest(UID),
        "sp",
        graph(UID),
        {UID: () if stored is None else (stored, *also)},
        {} if declared is None else {UID: declared},
        allow_non_restored=False,
        allow_pickled=allow_pickled,
    )
    [operator] = plan.operators
    return [(state.state, state.outcome, state.why) for state in operator.states]


def counted(*more: tuple[str, pa.DataType], keys: pa.Schema = USER) -> OwnTable:
    types = pa.schema([*keys, *more])
    return OwnTable(keys=tuple(keys.names), columns=tuple(types.names), types=types)


def says(*descriptors: StateDescriptor, keys: pa.Schema | None = USER) -> DeclaredState:
    return DeclaredState(states=descriptors, keys=keys, is_whole=False)


@pytest.mark.parametrize(
    ("stored", "wanted", "outcome", "why"),
    [
        pytest.param(INT, INT, StateOutcome.KEPT, "", id="unchanged"),
        pytest.param(INT, value(pa.int64()), StateOutcome.MIGRATED, "int32 to int64", id="wider"),
        pytest.param(
            INT, value(pa.string()), StateOutcome.REFUSED, "int32 cannot become string", id="another type"
        ),
        pytest.param(
            INT,
            value(pa.int32(), "m", renamed_from=("n",)),
            StateOutcome.MIGRATED,
            "renamed from 'n'",
            id="renamed",
        ),
        pytest.param(
            INT,
            value(pa.int64(), "m", renamed_from=("o", "n")),
            StateOutcome.MIGRATED,
            "renamed from 'n', int32 to int64",
            id="renamed and wider",
        ),
        pytest.param(
            value(pa.struct([("a", pa.int32())])),
            value(pa.struct([("a", pa.int32()), ("b", pa.string())])),
            StateOutcome.MIGRATED,
            "new field 'b'",
            id="a new field",
        ),
        pytest.param(
            value(pa.struct([("a", pa.int32()), ("b", pa.string())])),
            value(pa.struct([("a", pa.int32())])),
            StateOutcome.REFUSED,
            "field 'b' was removed, and its values would be lost",
            id="a field is gone",
        ),
        pytest.param(
            INT,
            value(pa.int32(), ttl=StateTtl("1 h")),
            StateOutcome.MIGRATED,
            "now with a time to live",
            id="a time to live",
        ),
        pytest.param(
            INT,
            ListStateDescriptor("n", pa.int32()),
            StateOutcome.REFUSED,
            "it was stored as value state, and is declared as list state",
            id="another kind",
        ),
        pytest.param(
            MapStateDescriptor("n", pa.int32(), key_type=pa.string()),
            MapStateDescriptor("n", pa.int64(), key_type=pa.string()),
            StateOutcome.MIGRATED,
            "int32 to int64",
            id="values of a map",
        ),
        pytest.param(
            value(pa.int64(), pickled=True),
            value(pa.int64()),
            StateOutcome.REFUSED,
            "its values were stored pickled, and are declared typed",
            id="pickled no more",
        ),
        pytest.param(
            value(pa.int64(), pickled=True),
            value(pa.int64(), pickled=True),
            StateOutcome.REFUSED,
            "its values are pickled; execution.state-recovery.allow-pickled-state allows reading them",
            id="pickled",
        ),
    ],
)
def test_a_declared_state(
    stored: StateDescriptor, wanted: StateDescriptor, outcome: StateOutcome, why: str
) -> None:
    assert states(kept(stored), says(wanted)) == [(wanted.name, outcome, why)]


def test_a_state_that_some_subtasks_still_had_under_its_former_name() -> None:
    wanted = value(pa.int32(), "m", renamed_from=("n",))
    assert states(kept(INT), says(wanted), kept(wanted)) == [
        ("m", StateOutcome.KEPT, ""),
        ("m", StateOutcome.MIGRATED, "renamed from 'n'"),
    ]


def test_pickled_state_that_is_allowed_is_kept() -> None:
    stored = value(pa.int64(), pickled=True)
    assert states(kept(stored), says(stored), allow_pickled=True) == [("n", StateOutcome.KEPT, "")]


@pytest.mark.parametrize(
    ("keys", "outcome"),
    [
        pytest.param(USER, StateOutcome.KEPT, id="the same"),
        pytest.param(None, StateOutcome.KEPT, id="not known before it runs"),
        pytest.param(
            pa.schema([("user", pa.dictionary(pa.int32(), pa.string()))]),
            StateOutcome.KEPT,
            id="as a dictionary",
        ),
        pytest.param(pa.schema([("user", pa.int64())]), StateOutcome.REFUSED, id="of another type"),
        pytest.param(pa.schema([("account", pa.string())]), StateOutcome.REFUSED, id="another column"),
        pytest.param(pa.schema([*USER, ("day", pa.date32())]), StateOutcome.REFUSED, id="one more"),
    ],
)
def test_key_columns(keys: pa.Schema | None, outcome: StateOutcome) -> None:
    [(_, found, why)] = states(kept(INT), says(INT, keys=keys))
    assert found is outcome
    assert why.startswith(
        "it was kept by (user string), and the key is now (" if outcome is StateOutcome.REFUSED else ""
    )


@pytest.mark.parametrize(
    ("stored", "declared", "outcome"),
    [
        pytest.param(None, says(INT), StateOutcome.NEW, id="nothing is stored"),
        pytest.param(kept(INT), says(), StateOutcome.UNKNOWN, id="an operator may ask for it when it runs"),
        pytest.param(kept(INT), None, StateOutcome.UNKNOWN, id="an operator that does not say"),
        pytest.param(kept(INT), DeclaredState(), StateOutcome.DROPPED, id="an operator without state"),
        pytest.param(
            StoredState(name="t", kind=StateKind.TIMERS, schema=USER), says(), StateOutcome.KEPT, id="timers"
        ),
        pytest.param(
            StoredState(name="splits", kind=None),
            DeclaredState(lists=frozenset({"splits"})),
            StateOutcome.KEPT,
            id="a list that is read",
        ),
        pytest.param(
            StoredState(name="rows.001", kind=None),
            DeclaredState(list_prefixes=("rows",)),
            StateOutcome.KEPT,
            id="a list by the beginning of its name",
        ),
        pytest.param(
            StoredState(name="w", kind=StateKind.TABLE, schema=USER),
            DeclaredState(tables={"w": counted()}),
            StateOutcome.KEPT,
            id="an own table",
        ),
        pytest.param(
            StoredState(name="w", kind=StateKind.TABLE, schema=USER),
            DeclaredState(tables={"w": counted(("count", pa.int64()))}),
            StateOutcome.REFUSED,
            id="an own table with other columns",
        ),
        pytest.param(
            StoredState(name="rocksdb/1", kind=None, is_native=True),
            says(),
            StateOutcome.UNKNOWN,
            id="files of a backend's own",
        ),
    ],
)
def test_other_states(
    stored: StoredState | None, declared: DeclaredState | None, outcome: StateOutcome
) -> None:
    [(_, found, _)] = states(stored, declared)
    assert found is outcome


TOTAL = ("total", pa.int64())
TWO_KEYS = pa.schema([*USER, ("day", pa.date32())])


def own(*columns: tuple[str, pa.DataType], keys: pa.Schema = USER) -> StoredState:
    schema = pa.schema([("__key_group", pa.uint16()), *keys, *columns])
    return StoredState(name="w", kind=StateKind.TABLE, schema=schema, rows=7)


@pytest.mark.parametrize(
    ("stored", "wanted", "outcome", "why"),
    [
        pytest.param(own(TOTAL), counted(TOTAL), StateOutcome.KEPT, "", id="unchanged"),
        pytest.param(
            own(("total", pa.float32()), ("n", pa.int8())),
            counted(("total", pa.float64()), ("n", pa.int64())),
            StateOutcome.MIGRATED,
            "column 'total': float to double, column 'n': int8 to int64",
            id="wider",
        ),
        pytest.param(
            own(TOTAL),
            counted(("total", pa.float64())),
            StateOutcome.REFUSED,
            "column 'total': int64 cannot become double; give the operator another uid",
            id="of another type",
        ),
        pytest.param(
            own(TOTAL),
            counted(("total", pa.int32())),
            StateOutcome.REFUSED,
            "column 'total': int64 cannot become int32; give the operator another uid",
            id="narrower",
        ),
        pytest.param(
            own(("total", pa.decimal128(38, 2))),
            counted(("total", pa.decimal128(38, 3))),
            StateOutcome.REFUSED,
            "column 'total': decimal128(38, 2) cannot become decimal128(38, 3); "
            "give the operator another uid",
            id="fewer digits before the point",
        ),
        pytest.param(
            own(TOTAL),
            counted(TOTAL, keys=pa.schema([("user", pa.int64())])),
            StateOutcome.REFUSED,
            "column 'user': a key of string cannot become int64: it would belong to another key group; "
            "give the operator another uid",
            id="another key",
        ),
        pytest.param(
            own(TOTAL, keys=pa.schema([("user", pa.int32())])),
            counted(TOTAL, keys=pa.schema([("user", pa.int64())])),
            StateOutcome.REFUSED,
            "column 'user': a key of int32 cannot become int64: it would belong to another key group; "
            "give the operator another uid",
            id="a wider key",
        ),
        pytest.param(
            own(TOTAL),
            counted(TOTAL, keys=pa.schema([("user", pa.large_string())])),
            StateOutcome.MIGRATED,
            "column 'user': string to large_string",
            id="a key in another layout",
        ),
        pytest.param(
            own(TOTAL, keys=TWO_KEYS),
            counted(TOTAL, keys=pa.schema(list(reversed(list(TWO_KEYS))))),
            StateOutcome.REFUSED,
            "it was kept by (user, day), and the key is now (day, user); give the operator another uid",
            id="the same keys in another order",
        ),
        pytest.param(
            own(TOTAL, keys=TWO_KEYS),
            counted(TOTAL),
            StateOutcome.REFUSED,
            "its columns have changed: day; give the operator another uid",
            id="a key is gone",
        ),
        pytest.param(
            own(TOTAL),
            OwnTable(keys=("user",), columns=("user", "total"), types=None),
            StateOutcome.UNKNOWN,
            "kept if its rows have the same types; declare them with returns=",
            id="of types that are not known before it runs",
        ),
        pytest.param(
            own(TOTAL),
            OwnTable(keys=("user",), columns=("user", "n"), types=None),
            StateOutcome.REFUSED,
            "its columns have changed: n, total; give the operator another uid",
            id="of other columns, whatever their types",
        ),
    ],
)
def test_a_table_of_an_operators_own(
    stored: StoredState, wanted: OwnTable, outcome: StateOutcome, why: str
) -> None:
    assert states(stored, DeclaredState(tables={"w": wanted})) == [("w", outcome, why)]


def set_up(how: str | None) -> StoredState:
    return StoredState(name="how", kind=None, mode=ListMode.BROADCAST, setting=how, rows=1)


@pytest.mark.parametrize(
    ("stored", "outcome"),
    [
        pytest.param([set_up("hours")], StateOutcome.KEPT, id="the same"),
        pytest.param([set_up("days")], StateOutcome.REFUSED, id="another"),
        pytest.param([], StateOutcome.KEPT, id="none is stored"),
    ],
)
def test_a_setting_without_which_a_table_says_nothing(
    stored: list[StoredState], outcome: StateOutcome
) -> None:
    declared = DeclaredState(tables={"w": counted(TOTAL)}, settings={"how": "hours"})
    plan = plan_restore(
        manifest(UID),
        "sp",
        graph(UID),
        {UID: (own(TOTAL), *stored)},
        {UID: declared},
        allow_non_restored=False,
        allow_pickled=False,
    )
    [operator] = plan.operators
    assert [(one.state, one.outcome) for one in operator.states] == [
        (one.name, outcome) for one in (own(TOTAL), *stored)
    ]
    for one in operator.states if outcome is StateOutcome.REFUSED else ():
        assert one.why.startswith("it was made by days, and the pipeline now has hours; go back to ")
        assert "give the operator another uid and allow non-restored state" in one.why


def listed(of: pa.DataType, mode: ListMode = ListMode.SPLIT) -> DeclaredList:
    return DeclaredList(name="list", schema=pa.schema([("value", of)]), mode=mode)


def kept_list(of: pa.DataType, mode: ListMode = ListMode.SPLIT) -> StoredState:
    return StoredState(name="list", kind=None, schema=pa.schema([("value", of)]), mode=mode)


@pytest.mark.parametrize(
    ("stored", "declared", "outcome", "why"),
    [
        pytest.param(None, listed(pa.int64()), StateOutcome.NEW, "", id="new"),
        pytest.param(kept_list(pa.int64()), listed(pa.int64()), StateOutcome.KEPT, "", id="unchanged"),
        pytest.param(
            kept_list(pa.int32()),
            listed(pa.int64()),
            StateOutcome.MIGRATED,
            "int32 to int64",
            id="wider elements",
        ),
        pytest.param(
            kept_list(pa.int64()),
            listed(pa.string()),
            StateOutcome.REFUSED,
            "int64 cannot become string",
            id="other elements",
        ),
        pytest.param(
            kept_list(pa.int64(), ListMode.UNION),
            listed(pa.int64()),
            StateOutcome.REFUSED,
            "it was stored as union list, and is declared as split list",
            id="dealt out in another way",
        ),
        pytest.param(
            StoredState(name="list", kind=None, mode=ListMode.BROADCAST),
            listed(pa.int64(), ListMode.BROADCAST),
            StateOutcome.KEPT,
            "",
            id="without elements",
        ),
        pytest.param(
            kept_list(pa.int64(), ListMode.UNION),
            None,
            StateOutcome.UNKNOWN,
            "dropped unless the operator requests it in open()",
            id="not declared",
        ),
    ],
)
def test_lists_of_an_operator(
    stored: StoredState | None, declared: DeclaredList | None, outcome: StateOutcome, why: str
) -> None:
    wanted = DeclaredState(typed_lists=() if declared is None else (declared,), has_all_lists=False)
    assert states(stored, wanted) == [("list", outcome, why)]


def test_a_keyed_state_is_no_list_of_the_same_name() -> None:
    keyed = kept(value(pa.int64(), "list"))
    wanted = DeclaredState(typed_lists=(listed(pa.int64()),), has_all_lists=False)
    assert [outcome for _, outcome, _ in states(keyed, wanted)] == [StateOutcome.NEW, StateOutcome.DROPPED]


def test_a_declared_state_may_be_in_files_of_a_backend() -> None:
    native = StoredState(name="rocksdb/1", kind=None, is_native=True)
    assert [outcome for _, outcome, _ in states(native, says(INT))] == [
        StateOutcome.UNKNOWN,
        StateOutcome.UNKNOWN,
    ]


# --- operators, and the job as a whole -------------------------------------------------------------

STORED = {OperatorUid(uid): (StoredState(name="list", kind=None, rows=1),) for uid in "abc"}
READS = DeclaredState(lists=frozenset({"list"}))


def planned(of: Manifest, job: JobGraph, *, allow: bool = False) -> RestorePlan:
    stored = {uid: STORED[uid] for vertex in of.vertices for uid in vertex.operators}
    declared = {op.uid: READS for vertex in job.vertices for op in vertex.operators}
    return plan_restore(of, "sp", job, stored, declared, allow_non_restored=allow, allow_pickled=False)


@pytest.mark.parametrize("allow", [False, True], ids=["by default", "non-restored state allowed"])
@pytest.mark.parametrize(
    ("of", "job"),
    [
        pytest.param(manifest("a", "b"), graph("a", "b"), id="unchanged"),
        pytest.param(manifest("a", "b"), graph("a", "b", "c"), id="one more behind"),
        pytest.param(manifest("a", "b", "c"), graph("a", "c"), id="one is gone"),
        pytest.param(manifest("a", "b"), graph("a", "c"), id="another uid"),
        pytest.param(manifest("b", finished=("b",)), graph("a", "b"), id="one more before a finished one"),
        pytest.param(manifest("a", "b", finished=("a", "b")), graph("a", "b"), id="all finished"),
        pytest.param(manifest("a", "b", finished=("a",)), graph("b"), id="a finished one is gone"),
    ],
)
def test_a_plan_is_refused_exactly_if_a_restore_is(of: Manifest, job: JobGraph, allow: bool) -> None:
    try:
        assign_state(of, "sp", job, allow_non_restored=allow)
        refused = None
    except ConfigError as error:
        refused = str(error)
    plan = planned(of, job, allow=allow)
    assert plan.is_refused == (refused is not None)
    assert plan.problems == (() if refused is None else (refused,))


def test_state_without_an_operator_is_refused_or_dropped() -> None:
    of, job = manifest("a", "b"), graph("a")
    refused = planned(of, job).operators[1]
    assert (refused.uid, refused.outcome) == ("b", StateOutcome.REFUSED)
    assert "allow non-restored state" in refused.why
    dropped = planned(of, job, allow=True).operators[1]
    assert dropped.states == (StatePlan(state="list", outcome=StateOutcome.DROPPED, rows=1),)
    assert not dropped.is_refused


def test_new_and_finished_operators() -> None:
    plan = planned(manifest("a", finished=("a",)), graph("a", "b"))
    assert [(op.uid, op.outcome) for op in plan.operators] == [
        ("a", StateOutcome.KEPT),
        ("b", StateOutcome.NEW),
    ]
    assert plan.operators[0].why == "it had finished and does not run again"


def test_a_drained_savepoint_is_refused_with_the_other_one() -> None:
    drained = structs.replace(manifest("a", kind=SnapshotKind.TERMINATE), resumable="savepoint-x")
    [problem] = planned(drained, graph("a")).problems
    assert "cannot be resumed from; resume from savepoint-x, next to it" in problem


# --- rows in flight ---------------------------------------------------------------------------------


def in_flight(of: Manifest, edge: str) -> Manifest:
    """The same, unaligned: rows were on their way along `edge` to its consumer, the last vertex."""
    run = InFlightRun(edge=EdgeId(edge), producer=0, consumer=0, start=0, stop=1)
    file = FileRef(path="rows", size=1, sha256="")
    *others, consumer = of.vertices
    task = structs.replace(consumer.subtasks[0], in_flight=InFlightHandle(file=file, inputs=(run,)))
    changed = structs.replace(consumer, subtasks=(task,))
    return structs.replace(of, kind=SnapshotKind.CHECKPOINT, vertices=(*others, changed))


def shipped(ship: Ship, parallelism: int) -> JobGraph:
    """a -> b."""
    job = graph("a", "b")
    vertices = tuple(structs.replace(vertex, parallelism=parallelism) for vertex in job.vertices)
    key_columns = ("k",) if ship is Ship.HASH else ()
    edges = tuple(structs.replace(edge, ship=ship, key_columns=key_columns) for edge in job.edges)
    return structs.replace(job, vertices=vertices, edges=edges)


@pytest.mark.parametrize(
    ("uid", "remedy"),
    [
        pytest.param("counts", "give the operator that uid", id="an operator"),
        pytest.param("rows-0", "give the operator that uid", id="a source that had no uid"),
        pytest.param("lake-committer", "give the operator that uid", id="the committer of a sink"),
        pytest.param(
            "delta-committer-2",
            "it is of a sink that had no uid, .* 'unistream savepoint finalize sp', then allow non-restored",
            id="the committer of a sink that had no uid, which nobody can give that",
        ),
    ],
)
def test_what_is_refused_says_a_way_that_there_is(uid: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=f"has state of operator uid '{uid}' .*{remedy}"):
        assign_state(manifest("a", uid), "sp", graph("a"), allow_non_restored=False)
    assert assign_state(manifest("a", uid), "sp", graph("a"), allow_non_restored=True)


@pytest.mark.parametrize("allow", [False, True], ids=["by default", "non-restored state allowed"])
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("edge", ["a-b", "gone"])
@pytest.mark.parametrize("ship", list(Ship))
def test_rows_in_flight_are_refused_exactly_if_a_restore_refuses_them(
    ship: Ship, edge: str, parallelism: int, allow: bool
) -> None:
    of, job = in_flight(manifest("a", "b"), edge), shipped(ship, parallelism)
    refused: tuple[str, ...] = ()
    try:
        restores = assign_state(of, "sp", job, allow_non_restored=allow)
        with_in_flight(restores, of, "sp", job, allow_non_restored=allow)
    except ConfigError as error:
        refused = (str(error),)
    assert planned(of, job, allow=allow).problems == refused
    bound = ship in (Ship.FORWARD, Ship.RESCALE, Ship.BROADCAST) and parallelism == 2
    assert bool(refused) == (not allow if edge == "gone" else bound)
    assert all("is an unaligned checkpoint with in-flight rows on" in reported for reported in refused)
