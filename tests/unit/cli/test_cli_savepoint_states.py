"""`unistream savepoint` of states by their kinds, and of checkpoints with rows on their way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unistream as us
from unistream.base.ids import EdgeId
from unistream.cli.main import main
from unistream.model.codec import decode_manifest, encode_manifest
from unistream.model.in_flight import InFlightHandle, InFlightRun
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.state import EXPIRES_COLUMN, ReducingStateDescriptor, StateOptions, StateTtl
from unistream.storage.state_files import FsStateWriter

BYTES = 5_000
VALUES = {"k": ["a", "b"], "value": [1, 2]}
TIMED = {**VALUES, EXPIRES_COLUMN: [5, 10**14]}
TIMERS = {"k": ["a", "b"], "__timestamp": [5, 7]}
WAITING = {"checkpoint_id": 1, "subtask": 0, "announced": 1, "payloads": [b"file"]}


def add(one: int, other: int) -> int:
    return one + other


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def unaligned(folder: Path) -> str:
    """A checkpoint whose one task has stored rows of two edges."""
    us.SavepointWriter().with_state("counts", "count", VALUES, keys=["k"]).write("chk-1")
    file = FsStateWriter(str(folder / "chk-1")).write("in-flight", bytes(BYTES))
    manifest = decode_manifest(Path("chk-1/_metadata").read_bytes())
    [vertex] = manifest.vertices
    half = BYTES // 2
    runs = [InFlightRun(edge=EdgeId(edge), producer=0, consumer=0, start=0, stop=half) for edge in "ef"]
    handle = InFlightHandle(file=file, inputs=(runs[0],), outputs=(runs[1],))
    task = msgspec.structs.replace(vertex.subtasks[0], in_flight=handle)
    vertices = (msgspec.structs.replace(vertex, subtasks=(task,)),)
    changed = msgspec.structs.replace(manifest, vertices=vertices, kind=SnapshotKind.CHECKPOINT)
    Path("chk-1/_metadata").write_bytes(encode_manifest(changed))
    return "chk-1"


class TestRowsOnTheirWay:
    """Every command that reads the manifest says so, and none takes them for state."""

    @pytest.mark.parametrize(
        ("words", "reported"),
        [
            (["inspect"], "in flight   5.0 kB of unprocessed rows at counts, in no state yet"),
            (
                ["query", "SELECT count(*) AS n FROM counts_count"],
                "in flight: 5.0 kB of unprocessed rows at",
            ),
            (["finalize"], "5.0 kB of rows were in flight when it was taken and are not in any output"),
        ],
        ids=lambda value: value[0] if isinstance(value, list) else "",
    )
    def test_for_people(
        self, capsys: pytest.CaptureFixture[str], unaligned: str, words: list[str], reported: str
    ) -> None:
        assert main(["savepoint", words[0], unaligned, *words[1:]]) == 0
        assert reported in " ".join(capsys.readouterr().out.split("\n"))
        us.SavepointWriter().with_state("counts", "count", VALUES, keys=["k"]).write("aligned")
        assert main(["savepoint", words[0], "aligned", *words[1:]]) == 0
        assert "on their way" not in capsys.readouterr().out

    def test_json(self, capsys: pytest.CaptureFixture[str], unaligned: str) -> None:
        found = self.shown(capsys, "inspect", unaligned)
        half = BYTES // 2
        assert found["in_flight"] == [{"vertex": "counts", "edge": edge, "size": half} for edge in ("e", "f")]
        assert self.shown(capsys, "query", unaligned, "SELECT sum(value)::BIGINT AS n FROM counts_count") == [
            {"n": 3}
        ]
        assert "5.0 kB of rows" in self.shown(capsys, "finalize", unaligned)["advice"]

    def test_a_savepoint_that_is_made_of_it_is_whole(
        self, capsys: pytest.CaptureFixture[str], unaligned: str
    ) -> None:
        pq.write_table(pa.table(VALUES), "rows")
        words = ["--operator", "counts", "--state", "count", "--keys", "k", "--file", "rows"]
        assert main(["savepoint", "write", *words, "--base", unaligned, "--out", "made"]) == 0
        capsys.readouterr()
        found = self.shown(capsys, "inspect", "made")
        assert (found["kind"], sum(one["size"] for one in found["in_flight"])) == ("savepoint", BYTES)

    def shown(self, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
        assert main(["savepoint", *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)


class TestKinds:
    def write(self, rows: dict[str, list[Any]], state: str, *more: str) -> int:
        pq.write_table(pa.table(rows), "rows")
        words = ["--operator", "op", "--state", state, "--keys", "k", "--file", "rows", "--out", "made"]
        return main(["savepoint", "write", *words, *more])

    @pytest.fixture(autouse=True)
    def old(self, folder: Path) -> None:
        options = StateOptions(ttl=StateTtl("1 h"))
        state = ReducingStateDescriptor("s", pa.int64(), reduce=add, options=options)
        us.SavepointWriter().with_state("op", state, TIMED, keys=["k"]).write("old")

    @pytest.mark.parametrize(
        ("more", "kind"),
        [
            pytest.param(("--base", "old"), "reducing", id="as it was"),
            pytest.param(("--base", "old", "--kind", "aggregating"), "aggregating", id="another"),
            pytest.param((), "value", id="new"),
            pytest.param(("--kind", "reducing"), "reducing", id="new, named"),
        ],
    )
    def test_of_values_with_a_time_to_live(self, more: tuple[str, ...], kind: str) -> None:
        assert self.write(TIMED, "s", *more) == 0
        made = us.read_savepoint("made")
        assert made.operator("op").states[0].kind == kind
        assert sorted(made.table("op", "s").column(EXPIRES_COLUMN).to_pylist()) == [5, 10**14]

    def test_of_timers(self) -> None:
        assert self.write(TIMERS, "__processing_timers", "--kind", "timers", "--base", "old") == 0
        found = us.read_savepoint("made").operator("op").states
        assert {state.name: state.kind for state in found} == {
            "s": "reducing",
            "__processing_timers": "timers",
        }

    @pytest.mark.parametrize(
        ("rows", "state", "more", "text"),
        [
            pytest.param(
                VALUES, "s", ("--base", "old"), "keep the column '__expires_at'", id="times are gone"
            ),
            pytest.param(
                TIMERS,
                "rings",
                ("--kind", "timers"),
                "--kind timers: the state must be one of __event_timers, __processing_timers, not 'rings'",
                id="timers of no clock",
            ),
            pytest.param(
                VALUES,
                "s",
                ("--base", "old", "--kind", "table"),
                "it is written by with_state",
                id="no table",
            ),
        ],
    )
    def test_bad_input_is_one_sentence(
        self, capsys: pytest.CaptureFixture[str], rows: Any, state: str, more: tuple[str, ...], text: str
    ) -> None:
        assert self.write(rows, state, *more) == 2
        err = capsys.readouterr().err
        assert text in err
        assert err.count("\n") == 1
        assert not Path("made").exists()


def test_pending_commits_and_rows_on_their_way_are_both_told(
    capsys: pytest.CaptureFixture[str], unaligned: str
) -> None:
    items = [msgspec.msgpack.encode([WAITING])]
    us.SavepointWriter.change(unaligned).with_list("out-committer", "committables", items).write("both")
    assert main(["savepoint", "finalize", "both", "--dry-run", "--json"]) == 2, "the sink is a user's own"
    assert "'out-committer'" in capsys.readouterr().err
    assert main(["savepoint", "inspect", "both"]) == 0
    out = capsys.readouterr().out
    assert "unprocessed rows at counts" in out
    assert "out-committer" in out
