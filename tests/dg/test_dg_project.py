"""A project of Dagster's own command line, `dg`, which is no package of ours: `make test-nightly` adds it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.eventually import WAIT_S

DG: Final = shutil.which("dg", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
COMPONENT: Final = "unistream.dagster.UnistreamJobComponent"
DEFINITIONS: Final = """from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
INTERVAL: Final = "execution.checkpointing.interval: 10 s"

pytestmark = pytest.mark.skipif(DG is None, reason="needs dg, which only `make test-nightly` adds")


@pytest.fixture
def dg(tmp_path: Path) -> Callable[..., str]:
    """What a command of `dg` says in a new project, in which one job is scaffolded."""
    project = tmp_path / "shop"
    package = project / "src" / "shop"
    (package / "defs").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "defs" / "__init__.py").touch()
    (project / "pyproject.toml").write_text(
        '[project]\nname = "shop"\nversion = "0.1.0"\n[tool.dg]\ndirectory_type = "project"\n'
        '[tool.dg.project]\nroot_module = "shop"\n'
    )
    (package / "definitions.py").write_text(DEFINITIONS)

    def run(*words: str, is_refused: bool = False, **variables: str) -> str:
        done = subprocess.run(
            [str(DG), *words],
            cwd=project,
            env={
                **{name: value for name, value in os.environ.items() if name != "LAKE"},
                "PATH": os.pathsep.join([str(Path(str(DG)).parent), os.environ["PATH"]]),
                "PYTHONPATH": str(project / "src"),
                "UNISTREAM_HOME": str(tmp_path / "home"),
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert (done.returncode != 0) is is_refused, done.stdout
        return done.stdout

    run("scaffold", "defs", COMPONENT, "orders")
    return run


def test_what_is_scaffolded_is_right_and_runs(dg: Callable[..., str], tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    assert "All definitions loaded successfully" in dg("check", "defs", LAKE=lake)
    listed = dg("list", "defs", LAKE=lake)
    assert all(name in listed for name in ("lake/orders", "stream_is_running", "orders_commits"))
    dg("launch", "--assets", "*", LAKE=lake)
    assert list((tmp_path / "lake" / "orders" / "_delta_log").glob("*.json"))


def test_a_variable_without_a_value_is_refused(dg: Callable[..., str], tmp_path: Path) -> None:
    said = dg("check", "defs", is_refused=True)
    assert "arguments.lake: '{{ env.LAKE }}' has no value, since LAKE is not set" in said
    assert not list(tmp_path.rglob("None"))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (INTERVAL.replace("interval", "intervall"), "did you mean 'execution.checkpointing.interval'"),
        (INTERVAL.replace("10 s", "10 parsecs"), "'10 parsecs' is not a duration"),
    ],
    ids=["a key", "a value"],
)
def test_a_mistake_in_the_configuration_is_refused(
    dg: Callable[..., str], tmp_path: Path, wrong: str, why: str
) -> None:
    [file] = tmp_path.rglob("defs.yaml")
    text = file.read_text()
    assert INTERVAL in text
    file.write_text(text.replace(INTERVAL, wrong))
    assert why in dg("check", "defs", is_refused=True, LAKE=str(tmp_path))
