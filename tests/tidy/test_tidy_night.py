"""`make nightly` goes on where it was stopped; tables say what the gate has taken, and how long waits are."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks import bounds
from tests import budget
from tests.eventually import WAIT_S, eventually
from tests.night import Night, TreeChanged, commit_of
from tests.spread import spread

ROOT = Path(__file__).parents[2]


class Makefile:
    """Targets pass, but for those in `failing`; in `stopped` the person presses Ctrl-C."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.failing: set[str] = set()
        self.stopped: set[str] = set()

    def __call__(self, target: str) -> bool:
        self.made.append(target)
        if target in self.stopped:
            raise KeyboardInterrupt
        return target not in self.failing

    def reset(self) -> None:
        self.made, self.failing, self.stopped = [], set(), set()


def test_a_night_goes_on_where_it_was_stopped_and_repeats_what_failed(tmp_path: Path) -> None:
    make, file, targets = Makefile(), tmp_path / "nightly.json", ["a", "b", "c", "d"]
    make.failing, make.stopped = {"b"}, {"d"}
    with pytest.raises(KeyboardInterrupt):
        Night(file, lambda: "one", make).run(targets)
    assert [line.split()[2] for line in Night(file, lambda: "one", make).table(targets).splitlines()[1:]] == [
        *("passed", "FAILED", "passed", "not"),
    ]

    make.reset()
    assert Night(file, lambda: "one", make).run(targets)
    assert make.made == ["b", "d"]

    make.reset()
    assert Night(file, lambda: "one", make).run(targets)
    assert make.made == []

    make.failing = {"c"}
    assert not Night(file, lambda: "two", make).run(targets)
    assert make.made == targets, "another commit has passed nothing"
    shown = Night(file, lambda: "two", make).table(["c", "d", "e"]).splitlines()[1:]
    assert [line.split()[-1] for line in shown] == ["one", "two", "–"], "where each has passed last"


def test_a_target_that_fails_fails_the_night_behind_all_others(tmp_path: Path) -> None:
    make = Makefile()
    make.failing = {"a"}
    assert not Night(tmp_path / "nightly.json", lambda: "one", make).run(["a", "b"])
    assert make.made == ["a", "b"]


def test_what_ran_while_the_tree_changed_has_not_passed(tmp_path: Path) -> None:
    commits = iter(["one", "one", "one", "two"])
    night = Night(tmp_path / "nightly.json", lambda: next(commits), Makefile())
    with pytest.raises(TreeChanged, match=r"was one and is two: that c passed counts for neither; start"):
        night.run(["a", "b", "c", "d"])
    results = [line.split()[2] for line in night.table(["a", "b", "c", "d"]).splitlines()[1:]]
    assert results == ["passed", "passed", "not", "not"]


MAKEFILE = """
good:
\t@echo good is made
slow:
\t@echo $$$$ > pid.new && mv pid.new pid && exec sleep 3600
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_night_that_is_ended_ends_its_target_and_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    """One that was killed cannot; the next waits for its target: it is refused until that has ended."""
    given(tmp_path, MAKEFILE)
    first = night_in(tmp_path)
    eventually((tmp_path / "pid").exists, "the slow target runs")
    target = psutil.Process(int((tmp_path / "pid").read_text()))
    refused = night_in(tmp_path)
    assert refused.wait(WAIT_S) == 1
    assert "a night runs already" in said(refused)
    first.send_signal(number)
    killed = number == signal.SIGKILL
    assert first.wait(WAIT_S) == (-number if killed else 128 + number)
    if killed:
        late = night_in(tmp_path)
        assert late.wait(WAIT_S) == 1
        target.kill()
        eventually(lambda: not is_held(tmp_path / "cache" / "nightly.lock"), "nothing of it is left")
    assert not target.is_running()
    (tmp_path / "pid").unlink()
    again = night_in(tmp_path)
    eventually((tmp_path / "pid").exists, "the slow target runs again")
    again.send_signal(signal.SIGTERM)
    again.wait(WAIT_S)
    lines = said(again).splitlines()
    assert lines[0].startswith("good: has passed at ")
    assert [line.split()[2] for line in lines[-3:-1]] == ["passed", "not"]
    assert (tmp_path / "cache" / "nightly" / "good.log").read_text() == "good is made\n"


def given(tree: Path, makefile: str) -> None:
    (tree / "Makefile").write_text(makefile)
    (tree / ".gitignore").write_text("pid\npid.new\ncache/\nsaid.*\n")
    git_in(tree, "init")
    git_in(tree, "add", ".")
    git_in(tree, "commit", "-m", "1")


def night_in(tree: Path) -> subprocess.Popen[bytes]:
    """Its output goes to a file by its pid."""
    out = tree / "said.new"
    with out.open("wb") as written:
        night = subprocess.Popen(
            [sys.executable, "-m", "tests.night", "good", "slow"],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(ROOT), "UNISTREAM_CACHE": str(tree / "cache")},
            stdout=written,
            stderr=subprocess.STDOUT,
        )
    out.rename(tree / f"said.{night.pid}")
    night.args = tree / f"said.{night.pid}"
    return night


def said(night: subprocess.Popen[bytes]) -> str:
    return Path(str(night.args)).read_text()


def is_held(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def git_in(tree: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *identity, *words], cwd=tree, check=True, capture_output=True)


def test_the_table_shows_how_long_each_took(tmp_path: Path) -> None:
    times = iter([0.0, 90.0])
    night = Night(tmp_path / "nightly.json", lambda: "1234", Makefile(), lambda: next(times))
    night.run(["crash-matrix"])
    assert night.table(["crash-matrix", "browser"]).splitlines()[1:] == [
        "crash-matrix       1234                  passed       1.5  1234",
        "browser            1234                  not run        –  –",
    ]


def test_a_tree_with_changes_is_another_commit(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1")
    given(tmp_path, MAKEFILE)
    committed = commit_of(tmp_path)
    (tmp_path / "a.txt").write_text("2")
    changed = commit_of(tmp_path)
    (tmp_path / "a.txt").write_text("3")
    assert len({committed, changed, commit_of(tmp_path)}) == 3
    assert changed.startswith(committed)
    (tmp_path / "a.txt").write_text("1")
    assert commit_of(tmp_path) == committed
    new = tmp_path / "new.txt"
    found = [commit_of(tmp_path) for text in ("1", "2") if new.write_text(text)]
    assert len({committed, *found}) == 3, "a new file counts with what is in it"


@pytest.mark.parametrize(
    ("test", "part"),
    [
        ("tests/unit/api/test_api_graph.py::test_a", budget.NEAR),
        ("tests/contract/sinks/test_sink_exactly_once.py::test_a[1]", budget.NEAR),
        ("tests/tidy/test_tidy_docs.py::test_guide", budget.NEAR),
        ("tests/equality/test_equality.py::test_a", budget.SIMULATED),
        ("tests/simulation/test_simulation_seeds.py::test_a", budget.SIMULATED),
        ("tests/integration/test_exactly_once.py::test_a", budget.INTEGRATION),
        ("tests/integration/test_sql_guide.py::test_a", budget.GUIDES),
        ("tests/integration/test_guide_pages.py::test_logs", budget.GUIDES),
        ("tests/integration/test_demo.py::test_a", budget.GUIDES),
        ("tests/browser/test_browser_dagster.py::test_a", budget.GUIDES),
    ],
)
def test_each_test_belongs_to_a_part_of_the_gate(test: str, part: str) -> None:
    assert budget.part_of(test) == part


def test_the_table_of_the_gate_has_a_line_for_each_part_and_one_for_all() -> None:
    shares = budget.shares({budget.NEAR: 30.0, budget.SIMULATED: 10.0}, session_s=60.0)
    shown = budget.table([(budget.CHECK, 66.0), *shares.items(), (budget.NEAR, 15.0)])
    assert [line.split()[-2:] for line in shown.splitlines()[1:]] == [
        *(["1.0", "1.1"], ["6.0", "1.0"], ["2.5", "0.2"], ["9.0", "–"], ["1.5", "–"], ["20.0", "2.4"]),
    ]


def test_the_table_of_bounds_shows_the_least_of_the_runs_next_to_what_is_wanted() -> None:
    runs = [{"a second signal ends a session cluster": run_s, "another": 1.0} for run_s in (4.5, 3.5)]
    [kept] = bounds.measured("sessions", runs)
    late = bounds.Measured(bound="late", wanted_s=1.0, runs_s=[1.5, 2.0])
    assert (kept.is_kept, late.is_kept) == (True, False)
    assert [line.split()[-3:] for line in bounds.table([kept, late]).splitlines()[1:]] == [
        *(["4.0", "3.5", "4.5"], ["2.0", "TOO", "LONG"]),
    ]
    assert json.loads(bounds.line("sessions", kept))["measured_s"] == 3.5
    with pytest.raises(KeyError):
        bounds.measured("spark", runs)


@pytest.mark.parametrize(
    ("tests", "order"),
    [
        ("", ""),
        ("abc", "abc"),
        ("KL", "KL"),
        ("abcdKL", "KabLcd"),
        ("abKLM", "KLaMb"),
        ("aaKKbb", "KKaabb"),
        ("KaLbcde", "KabLcde"),
    ],
)
def test_tests_that_wait_stand_between_those_that_compute(tests: str, order: str) -> None:
    assert "".join(spread(tests, module=str, waits=str.isupper)) == order


ROWS = """
import pytest, os

@pytest.mark.parametrize("row", range(4))
def test_rows(row):
    assert row != 2 or os.path.exists("mended")
"""

REGISTERS = """
from tests import goes_on

def pytest_configure(config):
    config.pluginmanager.register(goes_on.GoesOn(config.rootpath, config.rootpath / "passed"))
"""


def rows_in(tree: Path) -> tuple[int, list[str]]:
    """How a session there ends, with a worker of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "xdist.plugin", "-n", "1", "-p", "no:cacheprovider"],
        cwd=tree,
        env=inherited | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    *_, before, how = run.stdout.splitlines()
    return run.returncode, [before.partition(" at ")[0], how.partition(" in ")[0]]


def test_a_matrix_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """What failed runs again, what passed does not, and another commit has passed nothing."""
    (tmp_path / "conftest.py").write_text(REGISTERS)
    (tmp_path / "test_rows.py").write_text(ROWS)
    (tmp_path / ".gitignore").write_text("mended\npassed\n__pycache__\n")
    git_in(tmp_path, "init")
    git_in(tmp_path, "add", ".")
    git_in(tmp_path, "commit", "-m", "1")
    status, said = rows_in(tmp_path)
    assert (status, said[-1]) == (1, "1 failed, 3 passed")
    (tmp_path / "mended").touch()
    assert rows_in(tmp_path) == (0, ["3 tests had passed", "1 passed"])
    assert rows_in(tmp_path) == (0, ["4 tests had passed", "no tests ran"])
    git_in(tmp_path, "commit", "--allow-empty", "-m", "2")
    assert rows_in(tmp_path) == (0, ["0 tests had passed", "4 passed"])
