"""The package in the guide: built, installed next to unistream, and used as a stranger would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.eventually import WAIT_S
from tests.integration.crash_runs import Crashes
from tests.integration.test_wheel import call_uv

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "connectors.md"
ROWS = 10_000
RESTARTS = ("-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.delay=100 ms")


@dataclass(frozen=True, slots=True)
class Project:
    """`site`: where the package is installed."""

    folder: Path
    site: Path

    def unistream(self, *words: str) -> subprocess.CompletedProcess[str]:
        others = filter(None, [os.environ.get("PYTHONPATH")])
        return subprocess.run(
            [sys.executable, "-m", "unistream.cli.main", *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(self.site), *others])},
            check=False,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )

    def written(self) -> list[tuple[int, int]]:
        files = (self.folder / "journal").glob("*.jsonl")
        rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return sorted((row["n"], row["square"]) for row in rows)


def template(page: str) -> list[str]:
    """The module of the package, and the pipeline that uses it."""
    return [one for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "_squares" in one]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    text = GUIDE.read_text(encoding="utf-8")
    [project] = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    package, _ = template(text)
    (folder / "package").mkdir()
    (folder / "package" / "pyproject.toml").write_text(project)
    (folder / "package" / "unistream_squares.py").write_text(package)
    target = ("--no-deps", "--python", sys.executable, "--target", str(folder / "site"))
    call_uv("pip", "install", "--quiet", *target, str(folder / "package"), where=folder)
    return folder / "site"


@pytest.fixture
def project(installed: Path, tmp_path: Path) -> Project:
    _, pipeline = template(GUIDE.read_text(encoding="utf-8"))
    (tmp_path / "pipeline.py").write_text(pipeline)
    return Project(tmp_path, installed)


@pytest.mark.slow
def test_the_template_is_a_connector_like_ours(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashes = Crashes(tmp_path, monkeypatch)
    listed = project.unistream("connectors", "list", "--json")
    found = {one["name"]: one for one in json.loads(listed.stdout)}
    assert found["squares"]["package"] == "unistream-squares 0.1.0"
    assert found["squares"]["problem"] == ""
    shown = project.unistream("connectors", "info", "squares")
    assert all(
        word in shown.stdout for word in ("SquaresSource (source)", "One past the last number.", "journal")
    )
    crashes.arm("committer.committed")
    values = ("runtime-mode=STREAMING", "checkpointing.interval=100 ms")
    streaming = [word for value in values for word in ("-D", f"execution.{value}")]
    run = project.unistream("run", "pipeline:build", "-t", "local", "-p", "2", *streaming, *RESTARTS)
    assert run.returncode == 0, run.stderr
    crashes.assert_happened()
    assert project.written() == [(n, n * n) for n in range(ROWS)]


@pytest.mark.slow
def test_without_the_package_one_sentence_says_what_is_missing(project: Project) -> None:
    run = Project(project.folder, project.folder).unistream("run", "pipeline:build", "-t", "local")
    assert run.returncode == 2
    assert "unistream_squares" in run.stderr
    assert not (project.folder / "journal").exists()
