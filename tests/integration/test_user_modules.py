"""A pipeline in a package of several modules, on workers that were started where its project is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import WAIT_S
from tests.integration.cli_terminal import Terminal

PROJECT = {
    "flights/__init__.py": "",
    "flights/pipeline.py": """
import unistream as us
from flights.rules import Rule, label

RULE = Rule("seen")

def rows(env):
    source = us.DatagenSource({"id": us.datagen.Sequential()}, rows=100)
    return env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")

def good(env):
    rows(env).map(label).map(checked).sink_to(us.DeltaSink("OUT")).uid("out")

def checked(row):
    from flights.late import nothing_changed
    assert isinstance(RULE, Rule)
    return nothing_changed(row)

def needy(env):
    rows(env).map(asks_for_more).sink_to(us.BlackholeSink()).uid("out")

def asks_for_more(row):
    import not_on_any_worker
    return row

def installed(env):
    from only_here import same
    rows(env).map(same).sink_to(us.BlackholeSink()).uid("out")
""",
    "flights/rules.py": """
class Rule:
    def __init__(self, text):
        self.text = text

def label(row):
    return {**row, "label": "ok"}
""",
    "libs/only_here.py": "def same(row):\n    return row\n",
    "libs/only_here-1.0.dist-info/RECORD": "only_here.py,,\n",
    "flights/late.py": "def nothing_changed(row):\n    return row\n",
    "script.py": """
import unistream as us
from flights import rules

env = us.Environment(target="remote")
source = us.DatagenSource({"id": us.datagen.Sequential()}, rows=100)
stream = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
stream.map(lambda row: rules.label(row)).sink_to(us.BlackholeSink()).uid("out")
print(env.execute("script").state)
""",
}


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    for name, text in PROJECT.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("OUT", str(tmp_path / "table")))
    made = Terminal(tmp_path, "")
    yield made
    for process in made.processes():
        process.kill()


@contextmanager
def command(terminal: Terminal, folder: Path, *words: str) -> Iterator[dict[str, Any]]:
    """One that stays, in a folder of its own; what it prints first."""
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "unistream.cli", *words],
        cwd=folder,
        env=terminal.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline()) if "--json" in words else {}
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_S)


@pytest.fixture(params=["local", "standalone", pytest.param("spark", marks=pytest.mark.spark)])
def cluster(request: pytest.FixtureRequest, terminal: Terminal, tmp_path: Path) -> Iterator[None]:
    """Up, with workers of the target; none of its processes runs in the folder of the project."""
    target: str = request.param
    with ExitStack() as stack:
        port = ("-D", "jobmanager.rpc.port=0") if target == "standalone" else ()
        start = ("cluster", "start", "-t", target, "--json", *port)
        facts = stack.enter_context(command(terminal, tmp_path / "elsewhere", *start))
        if target == "standalone":
            join = ("taskmanager", "start", "--jobmanager", facts["jobmanager"])
            stack.enter_context(command(terminal, tmp_path / "another", *join))
        yield


def test_a_project_travels_with_its_pipeline(cluster: None, terminal: Terminal, tmp_path: Path) -> None:
    done = terminal("run", "flights.pipeline:good", "-t", "remote", "--json")
    assert json.loads(done.stdout)["state"] == "FINISHED"
    import deltalake

    table = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert (table.num_rows, set(table["label"].to_pylist())) == (100, {"ok"})


@pytest.mark.parametrize("cluster", ["local"], indirect=True)
def test_a_module_that_no_worker_has_fails_the_job_at_once(
    cluster: None, terminal: Terminal, tmp_path: Path
) -> None:
    for function, says in [
        ("installed", "needs module 'only_here', which this worker does not have; install it on the workers"),
        ("needy", "No module named 'not_on_any_worker' at row 0 of the batch: {"),
    ]:
        done = terminal(
            *("run", f"flights.pipeline:{function}", "-t", "remote"),
            *("-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.attempts=1000"),
            code=1,
            PYTHONPATH=str(tmp_path / "libs"),
        )
        [line] = done.stderr.splitlines()
        assert says in line


@pytest.mark.parametrize("cluster", ["local"], indirect=True)
def test_a_script_runs_on_a_remote_cluster(cluster: None, terminal: Terminal, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        cwd=os.sep,
        env=terminal.environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.stdout.split() == ["FINISHED"], done.stderr
