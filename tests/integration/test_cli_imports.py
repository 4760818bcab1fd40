"""What a command loads before it knows what it is asked for: nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import WAIT_S
from unistream.cli.commands import COMMANDS, Lazy
from unistream.client.machine.home import HOME_VARIABLE

HEAVY = (
    *("pyarrow", "numpy", "pyspark", "dagster", "fastapi", "starlette", "uvicorn", "sqlalchemy", "alembic"),
    *(
        "httpx",
        "fsspec",
        "yaml",
        "kafka",
        "deltalake",
        "pyiceberg",
        "duckdb",
        "pandas",
        "unistream.core",
        "unistream.master",
    ),
)
LIBRARIES = ("pyarrow", "numpy", "fsspec", "pyspark", "dagster", "fastapi", "sqlalchemy", "alembic")
LOADED = """import contextlib, io, json, sys
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    {statement}
print(json.dumps([name for name in {heavy!r} if name in sys.modules]))
"""
MAIN = "from unistream.cli.main import main; main({})"


def loaded_by(statement: str, heavy: tuple[str, ...] = HEAVY) -> list[str]:
    """Which of these modules a fresh interpreter has after `statement`."""
    code = LOADED.format(statement=statement, heavy=heavy)
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    found: list[str] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("import unistream", id="import unistream"),
        pytest.param(MAIN.format(["--help"]), id="unistream --help"),
        pytest.param(MAIN.format(["--version"]), id="unistream --version"),
        pytest.param(MAIN.format(["lst"]), id="a typing error"),
    ],
)
def test_nothing_heavy_is_loaded(statement: str) -> None:
    assert loaded_by(statement) == []


@pytest.mark.parametrize(
    "words", [["list"], ["run", "--help"], ["list", "--help"], ["cancel", "abcd"], ["taskmanager", "list"]]
)
def test_a_command_about_jobs_of_other_processes_loads_no_cluster(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))  # without entries of clusters that another test has left
    heavy = (*LIBRARIES, "unistream.client.embedded.embedded_cluster")
    assert loaded_by(MAIN.format(words), heavy) == []


JOB = """import unistream as us
    env = us.Environment(target="local")
    env.from_collection([{"n": 1}]).sink_to(us.PrintSink())
    env.execute("one row")"""


def test_a_job_that_nobody_looks_at_loads_no_server_and_nothing_of_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers have processes of their own, and the REST API is loaded for its first client."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    heavy = (
        *("fastapi", "starlette", "uvicorn", "pydantic", "httpx", "alembic", "numba", "pyspark", "dagster"),
        *("unistream.worker.process", "unistream.worker.task", "unistream.state"),
    )
    assert loaded_by(JOB, heavy) == []


@pytest.mark.parametrize(("name", "command"), list(COMMANDS.items()), ids=list(COMMANDS))
def test_the_list_of_commands_says_what_each_says_of_itself(name: str, command: Lazy) -> None:
    own = command.load(name)
    assert own.name == name
    assert command.help == " ".join(own.help.partition("\n\n")[0].split())


@pytest.mark.parametrize(("name", "command"), list(COMMANDS.items()), ids=list(COMMANDS))
def test_no_group_installs_a_completion_of_its_own(name: str, command: Lazy) -> None:
    options = {option for parameter in command.load(name).params for option in parameter.opts}
    assert not options & {"--install-completion", "--show-completion"}
