"""Every case of the files next to this one, played on our machines; and the runner that does it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.conformance.__main__ import main
from tests.support.conformance.case import Comparison, SkipCase
from tests.support.conformance.files import Found, find_cases
from tests.support.conformance.prose import IN_WORDS
from tests.support.conformance.runner import differing, report, run_case, run_cases
from unistream.base.errors import NotFound

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.json"))


def cases() -> list[Any]:
    found = list(find_cases(FILES))
    return [pytest.param(case, id=f"{case.title} [{number}]") for number, case in enumerate(found)]


@pytest.mark.parametrize("found", cases())
def test_case(found: Found) -> None:
    try:
        comparison = run_case(found)
    except SkipCase as skipped:
        pytest.skip(str(skipped))
    expected, actual = differing(comparison)
    assert comparison.expected == comparison.actual, f"expected {expected}\nactual {actual}"


SECTIONS_THAT_RUN = {
    "regions.json": {"cases", "resultPartitionTypes", "pointwiseEdgeMapping"},
    "scheduling.json": {"cases"},
    "failover.json": {"cases", "restartBackoff", "exponentialJitter", "configurationDefaults"},
    "keygroups.json": {
        "ranges",
        "defaultMaxParallelism",
        "hashes",
        "javaKeys",
        "preconditionErrors",
        "keyGroupRangeIntersections",
    },
    "checkpoint_plan.json": {"plans", "failureManager", "failureReasons", "requestQueue"},
    "state_redistribution.json": {
        "operatorState",
        "keyedState",
        "inFlightMappers",
        "finishedStateOfCheckpoint",
        "finishedStateOnRestore",
    },
    "watermarks.json": {"watermarkValve", "combinedWatermark", "barrierHandling"},
    "two_phase_commit.json": {"observedTraces", "twoPhaseCommitSinkFunction"},
    "lifecycle.json": {"observedTraces", "wireEvents", "notificationVectors", "failurePhases"},
}


@pytest.mark.parametrize("name", SECTIONS_THAT_RUN)
def test_a_section_that_can_run_is_not_skipped_as_a_whole(name: str) -> None:
    outcome = run_cases(find_cases([HERE / name]))
    all_titles = {found.section for found in find_cases([HERE / name])}
    skipped: dict[str, int] = {}
    for found, _ in outcome.skipped:
        skipped[found.section] = skipped.get(found.section, 0) + 1
    total: dict[str, int] = {}
    for found in find_cases([HERE / name]):
        total[found.section] = total.get(found.section, 0) + 1
    assert all_titles >= SECTIONS_THAT_RUN[name]
    assert {s for s in all_titles if skipped.get(s, 0) < total[s]} == SECTIONS_THAT_RUN[name]


# --- the runner itself ----------------------------------------------------------------------------


def write(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


GOOD = {"parallelism": 2, "defaultMaxParallelism": 128}
BAD = {"parallelism": 2, "defaultMaxParallelism": 7}


def lines_of(path: Path) -> list[str]:
    return list(report(run_cases(find_cases([path]))))


def test_a_failing_case_shows_both_sides_and_fails_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "others.json", {"about": {}, "defaultMaxParallelism": [GOOD, BAD]})
    assert main([str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "FAILED others.json defaultMaxParallelism: parallelism=2, defaultMaxParallelism=7",
        "  expected 7",
        "  actual   128",
        "1 passed, 1 failed, 0 skipped",
    ]


def test_a_run_in_which_nothing_failed_ends_with_0(tmp_path: Path) -> None:
    path = write(tmp_path, "more.json", {"defaultMaxParallelism": [GOOD]})
    assert main([str(path)]) == 0


NO_CASES: list[Any] = [
    pytest.param({}, id="an empty folder"),
    pytest.param({"a.json": {"cases": [{"name": "odd", "colour": "red"}]}}, id="an entry of another shape"),
    pytest.param({"a.json": {"plans": []}}, id="an empty section"),
    pytest.param({"a.json": [1], "notes.md": "words"}, id="no sections, and a text"),
    pytest.param({"a.json": {"sequences": [{"name": "cancel"}]}}, id="only words"),
]


@pytest.mark.parametrize("files", NO_CASES)
def test_a_run_in_which_no_case_was_played_ends_with_1_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: dict[str, object]
) -> None:
    for name, content in files.items():
        write(tmp_path, name, content)
    assert main([str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1].startswith("0 passed, 0 failed, ")
    assert printed.err == (
        f"error: no case was played: no file of {tmp_path} holds one that a machine reads\n"
    )


def test_what_a_test_of_ours_shows_is_listed_with_the_test(tmp_path: Path) -> None:
    names = [case["name"] for case in json.loads((HERE / "lifecycle.json").read_text())["sequences"]]
    lines = lines_of(write(tmp_path, "x.json", {"sequences": [{"name": name} for name in names]}))
    assert lines[0] == f"skipped {len(names)}: {IN_WORDS}"
    tests = [line for line in lines if line.startswith("    -> tests/conformance/test_conformance_")]
    assert [line for line in lines[1:-1] if line not in tests] == [
        f"  x.json sequences: {name}" for name in names
    ]
    assert len(tests) >= len(names)


def test_files_that_python_caches_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "test.pyc").write_bytes(b"")
    assert list(find_cases([tmp_path])) == []


def test_the_name_of_a_file_means_nothing(tmp_path: Path) -> None:
    content = json.loads((HERE / "keygroups.json").read_text())
    assert lines_of(write(tmp_path, "x.json", content))[-1] == lines_of(HERE / "keygroups.json")[-1]


def test_what_no_machine_reads_is_listed_with_a_reason(tmp_path: Path) -> None:
    write(tmp_path, "a.json", {"newSection": [{"name": "first"}, {"name": "second"}]})
    write(tmp_path, "b.json", {"cases": [{"name": "odd", "colour": "red"}]})
    write(tmp_path, "c.json", [1, 2])
    write(tmp_path, "notes.md", "words")
    assert lines_of(tmp_path) == [
        "skipped 2: no machine reads a section of this name: {name}",
        "  a.json newSection: first; a.json newSection: second",
        "skipped 1: no machine reads an entry of this shape: {colour, name}",
        "  b.json cases: odd",
        "skipped 1: no sections: the file is not a JSON object",
        "  c.json -: (the file)",
        "skipped 1: a text, not cases: it has no suffix .json",
        "  notes.md -: (the file)",
        "0 passed, 0 failed, 5 skipped",
    ]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param("{", "unreadable", id="a damaged file"),
        pytest.param({"plans": [{"vertices": 1, "edges": [], "states": {}, "expected": {}}]}, "TypeError"),
        pytest.param(
            {"pointwiseEdgeMapping": {"about": ""}}, "cannot be read as a case", id="a whole section"
        ),
        pytest.param(
            '{"plans": ' + "[" * 100_000 + "]" * 100_000 + "}",
            "unreadable",
            id="nested too deeply to be read",
        ),
        pytest.param(
            {
                "plans": [
                    {
                        "vertices": [["a", 1]],
                        "edges": [],
                        "states": {"a#1": "FINISHED"},
                        "expected": {"tasksToTrigger": ["a#0"]},
                    }
                ]
            },
            "the case has no subtask a#1",
            id="the state of a subtask that is not there",
        ),
        pytest.param(
            {"watermarkValve": [{"channels": 1, "steps": [{"channel": 0, "status": "SLEEPS", "out": []}]}]},
            "KeyError: 'SLEEPS'",
            id="a status that there is not",
        ),
        pytest.param(
            {
                "barrierHandling": [
                    {
                        "handler": "alternating",
                        "channels": 2,
                        "steps": [{"ch": 0, "barrier": 1, "type": "alined", "out": []}],
                        "end": {"latestCheckpointId": 1},
                    }
                ]
            },
            "KeyError: 'alined'",
            id="a kind of barrier that there is not",
        ),
        pytest.param(
            {
                "requestQueue": [
                    {
                        "maxConcurrent": 1,
                        "minPauseMs": 0,
                        "maxQueued": 1,
                        "steps": [
                            {
                                "request": "a",
                                "kind": "savepont",
                                "periodic": False,
                                "lastCompletionMs": 0,
                                "expected": {"execute": "a", "failed": {}, "queued": 0},
                            }
                        ],
                    }
                ]
            },
            "KeyError: 'savepont'",
            id="a kind of snapshot that there is not",
        ),
    ],
)
def test_a_case_that_cannot_be_played_has_failed(tmp_path: Path, content: object, text: str) -> None:
    lines = lines_of(write(tmp_path, "x.json", content))
    assert lines[-1] == "0 passed, 1 failed, 0 skipped"
    assert text in "\n".join(lines)


def test_only_what_differs_is_shown() -> None:
    assert differing(Comparison([1, 2, 3], [1, 5, 3])) == ({1: 2}, {1: 5})
    assert differing(Comparison({"a": 1, "b": 2}, {"a": 1, "b": 3})) == ({"b": 2}, {"b": 3})
    assert differing(Comparison("x", None)) == ("x", None)


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        list(find_cases([tmp_path / "nowhere"]))
    assert main([str(tmp_path / "nowhere")]) == 2


def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "tests.support.conformance", str(HERE / "keygroups.json")]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed, 0 failed, 1 skipped" in result.stdout.splitlines()[-1]
