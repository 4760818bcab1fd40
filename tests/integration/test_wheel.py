"""What a stranger gets: the wheel, installed into an empty environment, runs a pipeline of files."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.eventually import WAIT_S

ROOT = Path(__file__).resolve().parents[2]

PIPELINE = '''
"""Counts words: JSON lines in, JSON lines out."""
import sys

import pyarrow as pa
import unistream as us


class Count(us.KeyedProcessFunction):
    count = us.ValueStateDescriptor("count", pa.int64())

    def process_element(self, row, context, out):
        count = context.state(self.count)
        count.update((count.value() or 0) + 1)
        out.emit({"word": row["word"], "n": count.value()})


def pipeline(env):
    schema = pa.schema([("word", pa.string())])
    words = env.from_source(
        us.FileSource("words", format="json", schema=schema), us.WatermarkStrategy.no_watermarks(), "words"
    )
    words.uid("words")
    counts = words.key_by("word").process(Count(), returns={"word": pa.string(), "n": pa.int64()})
    counts.uid("counts").sink_to(us.FileSink("counts", format="json")).uid("files")


if __name__ == "__main__":
    env = us.Environment(target=sys.argv[1] if len(sys.argv) > 1 else None)
    pipeline(env)
    print(env.execute("words").state)
'''
WORDS = ["tea", "milk", "tea", "sugar", "tea", "milk"]
COUNTED = [("milk", 1), ("milk", 2), ("sugar", 1), ("tea", 1), ("tea", 2), ("tea", 3)]


@dataclass(frozen=True, slots=True)
class Stranger:
    """An environment with the base install of the wheel, and a folder with a script and its input."""

    folder: Path
    install_s: float

    def run(self, program: str, *arguments: str, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
        """Runs a program of the environment in the folder, which knows nothing of this repository."""
        shutil.rmtree(self.folder / "counts", ignore_errors=True)
        return subprocess.run(
            [str(self.folder / "venv" / "bin" / program), *arguments],
            cwd=self.folder,
            env=clean_environment(self.folder),
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def counted(self) -> list[tuple[str, int]]:
        """What the pipeline wrote."""
        files = [path for path in (self.folder / "counts").iterdir() if path.is_file()]
        rows = [json.loads(line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]
        return sorted((row["word"], row["n"]) for row in rows)

    def machine_code(self) -> list[Path]:
        """What the wheel brought, and what was compiled since."""
        return sorted(self.folder.rglob("*.loops*"))


def clean_environment(home: Path) -> dict[str, str]:
    """Without what this repository and its tests set."""
    ours = ("UNISTREAM_", "PYTHON", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "UNISTREAM_HOME": str(home / "home"), "XDG_CACHE_HOME": str(home / "cache")}


def uv() -> str:
    """The one that `make prerequisites` installed, if there is no other."""
    cache = Path(os.environ.get("UNISTREAM_CACHE") or Path.home() / ".cache" / "unistream")
    return os.environ.get("UV") or shutil.which("uv") or str(cache / "uv" / "bin" / "uv")


def call_uv(*arguments: str, where: Path = ROOT) -> str:
    """Raises AssertionError: what it said."""
    done = subprocess.run(
        [uv(), *arguments], cwd=where, check=False, capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    call_uv("build", "--wheel", "--quiet", "--out-dir", str(folder))
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def stranger(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    began = time.monotonic()
    folder = tmp_path_factory.mktemp("stranger")
    locked = folder / "locked.txt"  # the versions that everything else is tested with
    call_uv("export", "--frozen", "--no-hashes", "--no-emit-project", "--quiet", "-o", str(locked))
    call_uv("venv", "--quiet", "--python", sys.executable, str(folder / "venv"))
    python = str(folder / "venv" / "bin" / "python")
    call_uv(
        "pip", "install", "--quiet", "--python", python, "--constraint", str(locked), str(wheel), where=folder
    )
    (folder / "word_count.py").write_text(PIPELINE, encoding="utf-8")
    (folder / "words").mkdir()
    lines = "".join(json.dumps({"word": word}) + "\n" for word in WORDS)
    (folder / "words" / "a.json").write_text(lines, encoding="utf-8")
    return Stranger(folder, time.monotonic() - began)


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(
    stranger: Stranger, capsys: pytest.CaptureFixture[str]
) -> None:
    """One test: the steps build on one environment, which is worth ten seconds."""
    began = time.monotonic()
    installed = stranger.machine_code()
    assert installed
    script = stranger.run("python", "word_count.py")
    assert (script.returncode, script.stdout) == (0, "FINISHED\n"), script.stderr
    assert stranger.counted() == COUNTED
    (line,) = script.stderr.splitlines()
    assert 'pip install "unistream[spark]"' in line
    compiling = stranger.run("unistream", "connectors", "compile", timeout_s=WAIT_S)
    assert (compiling.returncode, compiling.stdout) == (0, ""), compiling.stderr
    assert stranger.machine_code() == installed, "no job compiles anything, and neither does the command"

    command = stranger.run("unistream", "run", "word_count:pipeline", "-t", "local", "--json")
    assert command.returncode == 0, command.stderr
    assert json.loads(command.stdout)["state"] == "FINISHED"
    assert stranger.counted() == COUNTED

    usage = stranger.run("unistream", "--help")
    assert (usage.returncode, usage.stderr) == (0, "")
    assert "simulate" in usage.stdout

    simulated = stranger.run("unistream", "simulate", "word_count:pipeline", "--seeds", "0:2")
    assert simulated.returncode == 0, simulated.stdout + simulated.stderr

    sink = stranger.run("python", "-c", "from unistream import *; print(min); DeltaSink('table')")
    assert sink.stdout == "<built-in function min>\n", sink.stderr
    assert sink.stderr.splitlines()[-1].endswith(
        'DeltaSink needs deltalake, which is not installed here: pip install "unistream[delta]"'
    )
    with capsys.disabled():
        print(f" install {stranger.install_s:.1f} s, use {time.monotonic() - began:.1f} s", end=" ")


def test_the_wheel_has_what_users_need_and_nothing_of_our_own(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    needed = {
        "unistream/py.typed",
        "unistream/__init__.pyi",
        "unistream/testing/__init__.pyi",
        "unistream/testing/simulation/__init__.py",
        "unistream/_migrations/env.py",
        "unistream/_deploy/kafka/pom.xml",
    }
    assert needed - names == set()
    page = "unistream/_ui/index.html"
    assert (page in names) is (ROOT / page).exists(), "the web UI, where it is built"
    assert {path.name for path in (ROOT / "migrations" / "versions").glob("*.py")} == {
        Path(name).name for name in names if name.startswith("unistream/_migrations/versions/")
    }
    ours = ("conformance", "mutants", "numbers.py", "state_bench", "life_cycle_doc", "test_", ".pyc")
    assert [name for name in names if any(part in name for part in ours)] == []
    own = wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"
    assert {name.split("/")[0] for name in names} == {"unistream", own}


def test_no_module_of_the_wheel_imports_one_that_is_left_out(wheel: Path) -> None:
    with ZipFile(wheel) as files:
        sources = {name: files.read(name) for name in files.namelist() if name.endswith(".py")}
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in sources}
    left_out = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "unistream").rglob("*.py")
    } - modules
    assert all(module.startswith("unistream.testing.") for module in left_out)
    for name, source in sources.items():
        if b"unistream.testing" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and node.module:
                wanted = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
                assert not wanted & left_out, f"{name} imports {wanted & left_out}"
