"""`make nightly` goes on where it was stopped; the gate's table says what each part has taken."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import budget
from tests.night import Night, commit_of

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
    make, file, targets = Makefile(), tmp_path / "cache" / "nightly.json", ["a", "b", "c", "d"]
    make.failing, make.stopped = {"b"}, {"d"}
    with pytest.raises(KeyboardInterrupt):
        Night(file, "one", make).run(targets)
    assert [line.split()[2] for line in Night(file, "one", make).table(targets).splitlines()[1:]] == [
        *("passed", "FAILED", "passed", "not"),
    ]

    make.reset()
    assert Night(file, "one", make).run(targets)
    assert make.made == ["b", "d"]

    make.reset()
    assert Night(file, "one", make).run(targets)
    assert make.made == []

    assert Night(file, "two", make).run(targets)
    assert make.made == targets, "another commit has passed nothing"


def test_a_target_that_fails_fails_the_night_behind_all_others(tmp_path: Path) -> None:
    make = Makefile()
    make.failing = {"a"}
    assert not Night(tmp_path / "nightly.json", "one", make).run(["a", "b"])
    assert make.made == ["a", "b"]


def test_the_table_shows_how_long_each_took(tmp_path: Path) -> None:
    times = iter([0.0, 90.0])
    night = Night(tmp_path / "nightly.json", "1234", Makefile(), lambda: next(times))
    night.run(["crash-matrix"])
    assert night.table(["crash-matrix", "browser"]).splitlines()[1:] == [
        "crash-matrix       1234                  passed       1.5",
        "browser            1234                  not run        –",
    ]


def test_a_tree_with_changes_is_another_commit(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "a.txt").write_text("1")
    git("add", ".")
    git("commit", "-m", "1")
    committed = commit_of(tmp_path)
    (tmp_path / "a.txt").write_text("2")
    changed = commit_of(tmp_path)
    (tmp_path / "a.txt").write_text("3")
    assert len({committed, changed, commit_of(tmp_path)}) == 3
    assert changed.startswith(committed)
    (tmp_path / "a.txt").write_text("1")
    assert commit_of(tmp_path) == committed


@pytest.mark.parametrize(
    ("test", "part"),
    [
        ("tests/unit/api/test_api_graph.py::test_a", budget.NEAR),
        ("tests/contract/test_contract_sink.py::test_a[1]", budget.NEAR),
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
