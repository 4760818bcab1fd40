"""A long session of tests that goes on where it was stopped: what has passed at this commit is not run again.

A plugin that `tests/conftest.py` registers where UNISTREAM_GOES_ON names the file: its first line is the
commit (`tests.night.commit_of`), each other one the id of a test that has passed. A tree that changes
meanwhile has passed nothing more.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.night import commit_of

VARIABLE: Final = "UNISTREAM_GOES_ON"
BEFORE: Final = "UNISTREAM_GOES_ON_AFTER"  # for the workers: how many lines of the file they leave out


class Passed:
    """The tests that have passed at `commit`, in `file`."""

    def __init__(self, file: Path, commit: str) -> None:
        self._file, self._commit = file, commit

    def begin(self) -> int:
        """How many there are; those of another commit are forgotten."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        if lines[:1] != [self._commit]:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(f"{self._commit}\n")
            return 0
        return len(lines) - 1

    def add(self, test: str) -> None:
        with self._file.open("a") as file:
            file.write(f"{test}\n")

    def first(self, number: int) -> set[str]:
        return set(self._file.read_text().splitlines()[1 : number + 1])


class GoesOn:
    def __init__(self, tree: Path, file: Path) -> None:
        self._tree, self._file = tree, file
        self._commit = ""
        self._failed: set[str] = set()

    def pytest_configure(self, config: pytest.Config) -> None:
        if "PYTEST_XDIST_WORKER" not in os.environ:  # which all see the same lines, while others are added
            self._commit = commit_of(self._tree)
            os.environ[BEFORE] = str(Passed(self._file, self._commit).begin())

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        passed = Passed(self._file, self._commit).first(int(os.environ[BEFORE]))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)
        ended = report.when == "teardown" and report.nodeid not in self._failed
        if ended and self._commit and commit_of(self._tree) == self._commit:
            Passed(self._file, self._commit).add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and int(os.environ[BEFORE]):
            session.exitstatus = pytest.ExitCode.OK  # all have passed before

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(f"{os.environ[BEFORE]} tests had passed at {self._commit} before")
