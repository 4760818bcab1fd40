"""`unistream savepoint inspect | query | write` and `unistream plan`, with good and with bad input."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from unistream.base.errors import CorruptSnapshot
from unistream.base.ids import OperatorUid
from unistream.cli.main import main
from unistream.model.codec import decode_manifest, encode_manifest
from unistream.model.messages import Split
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind
from unistream.model.state import ValueStateDescriptor
from unistream.testing.mini_cluster import MiniCluster

PIPELINE = """
import pyarrow as pa
import unistream as us
from unistream.model.state import StateOptions, ValueStateDescriptor

class Counts(us.KeyedProcessFunction):
    def __init__(self, descriptor):
        self.count = descriptor
    def process_element(self, row, context, out):
        raise AssertionError("a plan starts nothing")

def job(env, descriptor, uid="counts"):
    rows = us.StaticSource(pa.table({"user": pa.array([1, 2], pa.int64())}))
    source = env.from_source(rows, us.WatermarkStrategy.no_watermarks(), "users").uid("users")
    counted = source.key_by("user").process(Counts(descriptor), returns={"user": pa.int64()})
    counted.uid(uid).sink_to(us.CollectSink("collected")).uid("out")

def same(env):
    job(env, ValueStateDescriptor("count", pa.int32()))

def wider(env):
    job(env, ValueStateDescriptor("total", pa.int64(), options=StateOptions(renamed_from=("count",))))

def text(env):
    job(env, ValueStateDescriptor("count", pa.string()))

def elsewhere(env):
    job(env, ValueStateDescriptor("count", pa.int32()), uid="other")

class TwoHeirs(Counts):
    total = ValueStateDescriptor("total", pa.int32(), options=StateOptions(renamed_from=("count",)))

def heirs(env):
    rows = us.StaticSource(pa.table({"user": pa.array([1, 2], pa.int64())}))
    source = env.from_source(rows, us.WatermarkStrategy.no_watermarks(), "users").uid("users")
    source.key_by("user").process(TwoHeirs(ValueStateDescriptor("count", pa.int32()))).uid("counts").print()
"""

STREAM = ("-D", "execution.runtime-mode=STREAMING")


def counted() -> us.SavepointWriter:
    values = pa.array(range(100), pa.int32())
    rows = pa.table({"user": values.cast(pa.int64()), "value": values})
    return us.SavepointWriter().with_state(
        "counts", ValueStateDescriptor("count", pa.int32()), rows, keys=["user"]
    )


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A savepoint `sp` of 100 users in the current folder, and the module of pipelines next to it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "")
    split = msgspec.msgpack.encode(Split(id="topic-0", data=msgspec.msgpack.encode({"offset": 42})))
    waiting = msgspec.msgpack.encode(
        [{"checkpoint_id": 1, "subtask": 0, "announced": 1, "payloads": [b"file"]}]
    )
    writer = counted()
    writer.with_list("users", "splits", [split]).with_list("out-committer", "committables", [waiting])
    writer.write("sp")
    return "sp"


@pytest.fixture
def module(tmp_path: Path) -> str:
    name = f"planned_{abs(hash(str(tmp_path))):x}"
    (tmp_path / f"{name}.py").write_text(PIPELINE)
    return name


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


class TestInspect:
    def test_json(self, capsys: pytest.CaptureFixture[str], users: str) -> None:
        found = shown(capsys, "savepoint", "inspect", users)
        assert found["kind"] == "savepoint"
        assert found["can_resume"] is True
        assert 0 <= found["age_ms"] < 600_000
        [state] = next(op for op in found["operators"] if op["uid"] == "counts")["states"]
        assert (state["name"], state["kind"], state["rows"]) == ("count", "value", 100)
        assert found["positions"] == [
            {"uid": "users", "subtask": 0, "split": "topic-0", "position": {"offset": 42}}
        ]
        [commit] = found["pending_commits"]
        assert (commit["uid"], commit["checkpoint_id"], commit["committables"]) == ("out-committer", 1, 1)

    def test_for_people(self, capsys: pytest.CaptureFixture[str], users: str) -> None:
        assert main(["savepoint", "inspect", users]) == 0
        out = capsys.readouterr().out
        for text in ("the job continued", "counts", "count", "100", "topic-0", "offset 42", "out-committer"):
            assert text in out

    @pytest.mark.parametrize(
        ("changes", "for_programs", "for_people"),
        [
            pytest.param(
                {}, (None, None), "kind savepoint: the job continued\n", id="a savepoint is no half"
            ),
            pytest.param(
                {"resumes_after": 8},
                (8, None),
                "resumable savepoint of a drain, whose terminal one is checkpoint 8",
                id="the resumable half of a drain names the terminal one",
            ),
            pytest.param(
                {"kind": SnapshotKind.TERMINATE, "resumable": "go on"},
                (None, "{here}/go on"),
                "resume not from this one: unistream run … -s '{here}/go on'\n",
                id="the terminal half of a drain names the resumable one",
            ),
            pytest.param(
                {"kind": SnapshotKind.TERMINATE},
                (None, None),
                "resume no\n",
                id="a drained one that nothing was taken before",
            ),
        ],
    )
    def test_halves_of_a_drain(
        self, capsys: pytest.CaptureFixture[str], users: str,
        changes: dict[str, Any], for_programs: tuple[int | None, str | None], for_people: str,
    ) -> None:  # fmt: skip
        here = str(Path.cwd())
        _rewrite(MANIFEST, **changes)
        found = shown(capsys, "savepoint", "inspect", users)
        resumable = for_programs[1] and for_programs[1].format(here=here)
        assert (found["resumes_after"], found["resumable"]) == (for_programs[0], resumable)
        assert main(["savepoint", "inspect", users]) == 0
        assert for_people.format(here=here) in re.sub(" +", " ", capsys.readouterr().out)

    @pytest.mark.parametrize(
        ("changes", "for_programs", "line"),
        [
            pytest.param({}, "canonical", False, id="canonical"),
            pytest.param({"savepoint_format": SavepointFormat.NATIVE}, "native", True, id="native"),
            pytest.param({"kind": SnapshotKind.CHECKPOINT}, None, False, id="a checkpoint has no format"),
        ],
    )
    def test_the_format(
        self, capsys: pytest.CaptureFixture[str], users: str,
        changes: dict[str, Any], for_programs: str | None, line: bool,
    ) -> None:  # fmt: skip
        _rewrite(MANIFEST, **changes)
        assert shown(capsys, "savepoint", "inspect", users)["savepoint_format"] == for_programs
        assert main(["savepoint", "inspect", users]) == 0
        reported = "format      native: keyed state is in files of its backend" in capsys.readouterr().out
        assert reported is line

    def test_the_command_to_resume_is_quoted(self, capsys: pytest.CaptureFixture[str], users: str) -> None:
        Path(users).rename("my savepoint")
        assert main(["savepoint", "inspect", "my savepoint"]) == 0
        assert f"unistream run … -s '{Path.cwd()}/my savepoint'" in capsys.readouterr().out

    def test_watermarks(self, capsys: pytest.CaptureFixture[str], users: str) -> None:
        assert main(["savepoint", "inspect", users]) == 0
        assert "WATERMARK" not in capsys.readouterr().out, "nobody has recorded any"
        at = {OperatorUid("counts"): 1_000}
        vertices = [
            msgspec.structs.replace(
                vertex,
                subtasks=tuple(
                    task and msgspec.structs.replace(task, watermarks=at) for task in vertex.subtasks
                ),
            )
            for vertex in decode_manifest(MANIFEST.read_bytes()).vertices
        ]
        _rewrite(MANIFEST, vertices=tuple(vertices))
        found = {o["uid"]: o["watermark"] for o in shown(capsys, "savepoint", "inspect", users)["operators"]}
        text = "1970-01-01T00:00:01.000Z"
        assert found["counts"] == {
            "least": text, "least_ms": 1_000, "greatest": text, "greatest_ms": 1_000
        }  # fmt: skip
        assert found["users"] is None
        assert main(["savepoint", "inspect", users]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert any(line.split() == ["counts", text, text] for line in lines)
        assert any(line.split() == ["users", "not", "recorded"] for line in lines)


class TestQuery:
    def test_states_are_tables(self, capsys: pytest.CaptureFixture[str], users: str) -> None:
        sql = 'SELECT count(*) AS n, sum(value)::BIGINT AS total FROM "counts/count" WHERE user < 10'
        assert shown(capsys, "savepoint", "query", users, sql) == [{"n": 10, "total": 45}]
        assert shown(capsys, "savepoint", "query", users, "SELECT max(user) AS m FROM counts_count") == [
            {"m": 99}
        ]
        sql = "SELECT split, position->>'offset' AS at FROM users_splits"
        assert shown(capsys, "savepoint", "query", users, sql) == [{"split": "topic-0", "at": "42"}]

    def test_for_people_many_rows_are_cut(self, capsys: pytest.CaptureFixture[str], users: str) -> None:
        sql = "SELECT a.user FROM counts_count a, counts_count b"
        assert main(["savepoint", "query", users, sql]) == 0
        assert "… and 9,800 more rows" in capsys.readouterr().out

    @pytest.mark.parametrize(
        "sql", ["SELECT * FROM nothing", "SELEKT 1", "SELECT nope FROM counts_count"], ids=str
    )
    def test_a_wrong_statement_names_the_tables(
        self, capsys: pytest.CaptureFixture[str], users: str, sql: str
    ) -> None:
        assert main(["savepoint", "query", users, sql]) == 2
        assert '"counts/count"' in capsys.readouterr().err


class TestWrite:
    def write(self, file: str, *more: str, keys: str = "user", out: str = "made") -> int:
        words = ["--operator", "counts", "--state", "count", "--keys", keys, "--file", file, "--out", out]
        return main(["savepoint", "write", *words, *more])

    @pytest.mark.parametrize("form", ["parquet", "arrow", "stream"])
    def test_from_files(self, capsys: pytest.CaptureFixture[str], users: str, form: str) -> None:
        rows = pa.table({"user": pa.array([7, 8], pa.int64()), "value": pa.array([1, 2], pa.int64())})
        _store(rows, form)
        assert self.write(form, "--max-parallelism", "16") == 0
        made = us.read_savepoint("made")
        assert made.operator("counts").max_parallelism == 16
        assert sorted(made.table("counts", "count").column("user").to_pylist()) == [7, 8]

    def test_in_place_of_a_state_of_another_savepoint(self, users: str) -> None:
        _store(pa.table({"user": pa.array([7], pa.int64()), "value": pa.array([1], pa.int64())}), "parquet")
        assert self.write("parquet", "--base", users) == 0
        made = us.read_savepoint("made")
        assert made.table("counts", "count").num_rows == 1
        assert [split.split for split in made.positions] == ["topic-0"]

    @pytest.mark.parametrize(
        ("file", "more", "text"),
        [
            pytest.param("missing", (), "there is no file missing", id="no such file"),
            pytest.param("sp/_metadata", (), "cannot be read as Parquet or Arrow", id="something else"),
            pytest.param(
                "good", ("--keys", "nope"), "no key column 'nope' among user, value", id="no such key"
            ),
            pytest.param("good", ("--kind", "tree"), "--kind 'tree' is not one of value,", id="no such kind"),
            pytest.param("good", ("--kind", "map"), "there is no column 'map_key'", id="a map without keys"),
            pytest.param("good", ("--kind", "list"), "is int64, not a list", id="a list of numbers"),
            pytest.param("twice", (), "the key user=7 appears more than once", id="a key twice"),
            pytest.param("good", ("--out", "sp"), "exists already", id="a directory that exists"),
            pytest.param("good", ("--max-parallelism", "0"), "between 1 and", id="no key groups"),
        ],
    )
    def test_bad_input_is_one_sentence(
        self, capsys: pytest.CaptureFixture[str], users: str, file: str, more: tuple[str, ...], text: str
    ) -> None:
        _store(pa.table({"user": pa.array([7], pa.int64()), "value": pa.array([1], pa.int64())}), "good")
        _store(
            pa.table({"user": pa.array([7, 7], pa.int64()), "value": pa.array([1, 2], pa.int64())}), "twice"
        )
        assert self.write(file, *more) == 2
        err = capsys.readouterr().err
        assert text in err
        assert err.count("\n") == 1
        assert not Path("made").exists()


def _store(rows: pa.Table, form: str) -> None:
    """In a file called as its form."""
    if form == "arrow":
        with pa.ipc.new_file(form, rows.schema) as file:
            file.write_table(rows)
    elif form == "stream":
        with pa.ipc.new_stream(form, rows.schema) as file:
            file.write_table(rows)
    else:
        pq.write_table(rows, form)


class TestPlan:
    @pytest.mark.parametrize(
        ("function", "code", "fate", "why"),
        [
            pytest.param("same", 0, "kept", "", id="unchanged"),
            pytest.param("wider", 0, "migrated", "renamed from 'count', int32 to int64", id="renamed, wider"),
            pytest.param("text", 1, "refused", "int32 cannot become string", id="another type"),
        ],
    )
    def test_states(  # noqa: PLR0917
        self, capsys: pytest.CaptureFixture[str], users: str, module: str,
        function: str, code: int, fate: str, why: str,
    ) -> None:  # fmt: skip
        assert main(["plan", f"{module}:{function}", "--against", users, "--json", *STREAM]) == code
        found = json.loads(capsys.readouterr().out)
        assert found["refused"] is bool(code)
        [state] = next(op for op in found["operators"] if op["uid"] == "counts")["states"]
        assert (state["fate"], state["why"]) == (fate, why)
        assert next(op for op in found["operators"] if op["uid"] == "users")["states"][0]["fate"] == "kept"

    def test_a_batch_job_starts_from_none(
        self, capsys: pytest.CaptureFixture[str], users: str, module: str
    ) -> None:
        assert main(["plan", f"{module}:same", "--against", users]) == 2
        assert "a BATCH job reads its inputs from their beginning" in capsys.readouterr().err

    def test_latest_is_what_a_run_would_go_on_from(
        self, capsys: pytest.CaptureFixture[str], users: str, module: str
    ) -> None:
        assert main(["plan", f"{module}:same", "--against", "latest", *STREAM]) == 2
        assert "there is no snapshot that the pipeline would go on from" in capsys.readouterr().err

    def test_for_people(self, capsys: pytest.CaptureFixture[str], users: str, module: str) -> None:
        words = ["plan", f"{module}:elsewhere", "--against", users, *STREAM]
        assert main(words) == 1
        out = capsys.readouterr().out
        assert "operator uid 'counts'" in out
        assert "new" in out
        assert main([*words, "--allow-non-restored-state"]) == 0
        assert "dropped" in capsys.readouterr().out

    def test_declarations_that_contradict_each_other(
        self, capsys: pytest.CaptureFixture[str], users: str, module: str
    ) -> None:
        assert main(["plan", f"{module}:heirs", "--against", users, *STREAM]) == 2
        err = capsys.readouterr().err
        assert "'TwoHeirs': state 'total' is renamed from 'count', which is still declared" in err
        assert err.count("\n") == 1


# --- damage ----------------------------------------------------------------------------------------


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _flip(path: Path, place: int | None = None) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 1
    path.write_bytes(content)


def _rewrite(path: Path, **changes: Any) -> None:
    """A manifest that says something else, with a checksum that fits."""
    path.write_bytes(encode_manifest(msgspec.structs.replace(decode_manifest(path.read_bytes()), **changes)))


def _state_file() -> Path:
    [file] = Path("sp/counts/count").iterdir()
    return file


MANIFEST = Path("sp/_metadata")
UNFINISHED = ("has no _metadata file", "the directory does not exist")
DAMAGE: list[Any] = [
    pytest.param(lambda: _cut(MANIFEST), "_metadata", "truncated", id="a truncated manifest"),
    pytest.param(lambda: _flip(MANIFEST), "_metadata", "", id="a manifest with a flipped bit"),
    pytest.param(lambda: MANIFEST.write_bytes(b""), "_metadata", "", id="an empty manifest"),
    pytest.param(lambda: _rewrite(MANIFEST, format=99), "_metadata", "99", id="a newer manifest"),
    pytest.param(
        lambda: MANIFEST.write_bytes(b"\x49\x60\x67\x2d\x00\x00\x00\x05" + bytes(100)),
        "_metadata", "not a manifest", id="another system's manifest",
    ),
    pytest.param(MANIFEST.unlink, "sp", "has no _metadata file", id="no manifest"),
    pytest.param(lambda: shutil.rmtree("sp"), "sp", "the directory does not exist", id="no directory"),
    pytest.param(lambda: _state_file().unlink(), "counts/count/part-", "is missing", id="no state file"),
    pytest.param(lambda: _cut(_state_file()), "counts/count/part-", "truncated", id="a truncated state file"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "file", "text"), DAMAGE)
@pytest.mark.parametrize("command", ["inspect", "query", "plan", "run"])
def test_damage_names_the_file(  # noqa: PLR0917
    capsys: pytest.CaptureFixture[str],
    users: str,
    module: str,
    damage: Callable[[], object],
    file: str,
    text: str,
    command: str,
) -> None:
    damage()
    words = {
        "inspect": ["savepoint", "inspect", users],
        "query": ["savepoint", "query", users, "SELECT * FROM counts_count"],
        "plan": ["plan", f"{module}:same", "--against", users, *STREAM],
        "run": ["run", f"{module}:same", "-t", "local", "-s", users, *STREAM],
    }[command]
    assert main(words) == 2
    err = capsys.readouterr().err
    assert file in err
    assert text in err
    assert err.count("\n") == 1
    assert ("choose another snapshot (run -s DIR)" in err) == (text not in UNFINISHED)


def _longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


@pytest.mark.parametrize(
    ("damage", "file"),
    [
        pytest.param(
            lambda: MANIFEST.write_bytes(MANIFEST.read_bytes()[:-1]), "_metadata", id="cut by a byte"
        ),
        pytest.param(lambda: _longer(MANIFEST), "_metadata", id="a byte more"),
        pytest.param(lambda: _flip(_state_file()), "counts/count/part-", id="a flipped bit in the rows"),
        pytest.param(
            lambda: _flip(_state_file(), -12), "counts/count/part-", id="a flipped bit in the footer"
        ),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["for people", "json"])
def test_inspect_finds_all_damage(
    capsys: pytest.CaptureFixture[str],
    users: str,
    damage: Callable[[], object],
    file: str,
    form: tuple[str, ...],
) -> None:
    damage()
    assert main(["savepoint", "inspect", users, *form]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert file in err
    assert err.count("\n") == 1


def test_inspect_names_every_damaged_file(capsys: pytest.CaptureFixture[str], users: str) -> None:
    more = pa.table({"user": [1, 2], "value": [3, 4]})
    two = us.SavepointWriter.change(users).with_state("more", "sum", more, keys=["user"]).write("two")
    files = sorted(path for path in Path("two").glob("*/*/*") if path.is_file())
    assert len(files) == 2
    for path in files:
        _flip(path)
    assert main(["savepoint", "inspect", two]) == 2
    err = capsys.readouterr().err
    assert all(str(path) in err for path in files)


def test_inspect_can_leave_checksums_alone(capsys: pytest.CaptureFixture[str], users: str) -> None:
    assert main(["savepoint", "inspect", users, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verified"] is True
    _flip(_state_file())
    assert main(["savepoint", "inspect", users, "--no-verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verified"] is False


def test_a_flipped_bit_of_a_state_is_found_where_it_is_read(
    capsys: pytest.CaptureFixture[str], users: str
) -> None:
    _flip(_state_file())
    assert main(["savepoint", "query", users, "SELECT * FROM counts_count"]) == 2
    err = capsys.readouterr().err
    assert "counts/count/part-" in err
    assert "checksum" in err
    with pytest.raises(CorruptSnapshot, match="counts/count/part-"):
        us.SavepointWriter.change(users).write("made")
    assert not Path("made").exists()


def test_a_job_with_a_flipped_bit_fails_and_names_the_file(users: str, module: str) -> None:
    import importlib

    shutil.rmtree(users)
    counted().write(users)  # without the positions of a source that is none of ours
    _flip(_state_file())
    env = us.Environment(STREAMING)
    importlib.import_module(module).same(env)
    graph, code = env.job_graph()
    with MiniCluster(task_managers=1) as cluster:
        config = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1000"}
        result = cluster.submit(graph, code, savepoint="sp", config=config).wait(WAIT_S)
    assert result.state == "FAILED"
    assert result.failure is not None
    assert "counts/count/part-" in result.failure.message


class TestFinalize:
    PIPELINE = """
import unistream as us
from unistream.base.errors import OutcomeUnknown

class Own(us.TwoPhaseCommitSink):
    name = "own"
    def commit(self, transaction):
        if transaction == "lost":
            raise OutcomeUnknown("the ledger does not answer")
        print("moved", transaction)

def build(env):
    rows = us.DatagenSource({"n": us.datagen.Sequential()}, rows=1)
    stream = env.from_source(rows, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    stream.sink_to(Own()).uid("own")
"""

    @pytest.fixture
    def ledger(self, tmp_path: Path, users: str) -> str:
        """Its module; the current folder has two savepoints, `good` and `lost`."""
        for name in ("good", "lost"):
            held = msgspec.msgpack.encode({"handle": msgspec.msgpack.encode(name), "begun_ms": 0, "v": 1})
            part = {"checkpoint_id": 1, "subtask": 0, "announced": 1, "payloads": [held]}
            item = msgspec.msgpack.encode([part])
            us.SavepointWriter().with_list("own-committer", "committables", [item]).write(name)
        module = f"ledger_{abs(hash(str(tmp_path))):x}"
        (tmp_path / f"{module}.py").write_text(self.PIPELINE)
        return module

    def test_a_sink_of_ones_own(self, capsys: pytest.CaptureFixture[str], ledger: str) -> None:
        assert main(["savepoint", "finalize", "good", "--pipeline", f"{ledger}:build"]) == 0
        out = capsys.readouterr().out
        assert "moved good" in out
        assert "everything is committed" in out

    def test_json(self, capsys: pytest.CaptureFixture[str], ledger: str) -> None:
        found = shown(capsys, "savepoint", "finalize", "good", "--dry-run", "--pipeline", f"{ledger}:build")
        [commit] = found["commits"]
        assert (commit["operator"], commit["outcome"], commit["committables"]) == (
            "own-committer",
            "pending",
            1,
        )

    def test_an_unknown_outcome_is_told(self, capsys: pytest.CaptureFixture[str], ledger: str) -> None:
        assert main(["savepoint", "finalize", "lost", "--pipeline", f"{ledger}:build"]) == 1
        out = capsys.readouterr().out
        for text in ("unknown outcome", "the ledger does not answer", "nothing was deleted"):
            assert text in out

    def test_without_the_pipeline(self, capsys: pytest.CaptureFixture[str], ledger: str) -> None:
        assert main(["savepoint", "finalize", "good"]) == 2
        assert "--pipeline MODULE:FUNCTION" in capsys.readouterr().err

    def test_with_another_pipeline(self, capsys: pytest.CaptureFixture[str], ledger: str, users: str) -> None:
        assert main(["savepoint", "finalize", users, "--pipeline", f"{ledger}:build"]) == 2
        assert "has no committer with uid 'out-committer'; it has 'own-committer'" in capsys.readouterr().err

    def test_nothing_is_pending(self, capsys: pytest.CaptureFixture[str], users: str) -> None:
        counted().write("empty")
        assert main(["savepoint", "finalize", "empty"]) == 0
        assert "nothing is pending" in capsys.readouterr().out

    def test_no_savepoint(self, capsys: pytest.CaptureFixture[str], users: str) -> None:
        assert main(["savepoint", "finalize", "nowhere"]) == 2
        assert "nowhere" in capsys.readouterr().err
