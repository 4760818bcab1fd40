"""Graphs that cannot run are refused by the command line: one sentence with names, and exit code 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unistream.cli.main import main

PIPELINES = Path(__file__).parents[2] / "integration" / "pipelines"


def option(key: str, value: str) -> tuple[str, ...]:
    return ("-D", f"{key}={value}")


Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a pipeline that is refused, and gives what was said."""
    monkeypatch.chdir(PIPELINES)
    monkeypatch.syspath_prepend(str(PIPELINES))
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("LAKE", str(tmp_path / "lake"))

    def refused(*words: str) -> str:
        assert main(["run", "-t", "local", *words]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert error.count("\n") == 1
        assert not (tmp_path / "lake").exists()
        return error

    return refused


@pytest.mark.parametrize(
    ("function", "arguments", "texts"),
    [
        pytest.param(
            "endless",
            (),
            ["exchange 'numbers' -> ", "it is blocking", "'numbers' before it never ends"],
            id="endless",
        ),
        pytest.param(
            "hybrid", (), ["HYBRID_FULL are not supported", "execution.batch-shuffle-mode"], id="hybrid"
        ),
        pytest.param(
            "unknown_group",
            (),
            ["operator 'numbers'", "'hevy' is unknown", "'heavy'", "register_slot_sharing_group"],
            id="unknown slot sharing group",
        ),
        pytest.param(
            "unused_profile", (), ["'heavy' has a resource profile", "no operator"], id="unused profile"
        ),
        pytest.param("apart", (), ["'numbers'", "'filter", "co-located"], id="co-location across regions"),
        pytest.param(
            "unequal",
            (),
            ["'numbers'", "'filter", "parallelism is 1 and 2", "set_parallelism"],
            id="co-location of unequal parallelism",
        ),
        pytest.param("cycle", (), ["'filter' -> 'filter' -> 'filter' form a cycle", "feedback"], id="cycle"),
        pytest.param(
            "committers",
            (),
            ["sink_to: Parallel (sink 'files')", "rows", "would be lost", "let global_committer of Parallel"],
            id="several committers where there must be one",
        ),
        pytest.param("good", ("-p", "0"), ["parallelism.default: 0"], id="parallelism 0"),
        *(
            pytest.param("good", option(key, "best"), [f"{key}: 'best' is not one of", allowed], id=key)
            for key, allowed in (
                ("restart-strategy.type", "failure-rate"),
                ("jobmanager.execution.failover-strategy", "region"),
                ("jobmanager.scheduling-strategy", "pipelined-region"),
                ("jobmanager.scheduler", "adaptive"),
                ("execution.runtime-mode", "AUTOMATIC"),
            )
        ),
        pytest.param(
            "good",
            option("execution.runtime-mode", "BATCH")
            + option("execution.batch-shuffle-mode", "ALL_EXCHANGES_HYBRID_FULL"),
            ["execution.batch-shuffle-mode=ALL_EXCHANGES_HYBRID_FULL: hybrid exchanges are not supported"],
            id="hybrid shuffle",
        ),
    ],
)
def test_a_graph_that_cannot_run_is_refused_by_name(
    run: Run, own_home: Path, function: str, arguments: tuple[str, ...], texts: list[str]
) -> None:
    error = run(f"bad_graphs:{function}", *arguments)
    for text in texts:
        assert text in error
    assert not list(own_home.glob("work/*")), "a cluster was started"


def test_a_profile_that_no_worker_can_serve_is_refused_by_the_master(run: Run) -> None:
    error = run("bad_graphs:huge")
    for text in (
        "operator 'numbers",
        "slot sharing group 'heavy' needs 100000 cpu cores",
        "numberOfTaskSlots",
    ):
        assert text in error
