"""Rows that operators cannot process: each is in the table of letters once, the others in that of rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import unistream as us
from tests.integration.crash_runs import RECOVERING, Crashes, in_the_gate, run_to_end
from tests.integration.failing_rows import check, counts, failing
from unistream.cli.main import main
from unistream.dagster.run.metadata import job_metadata

OFTEN = {**RECOVERING, "execution.checkpointing.interval": "200 ms"}

KILLS = {
    "in the middle of a batch": ("task.batch:20",),
    "with letters staged": ("delta.staged:2",),
    "between checkpoint and commit": ("committer.before_commit:2",),
    "between the two commits": ("delta.appended:2",),
    "while the commit is repeated": (
        *("committer.before_commit:2", "restore.before_commit", "restore.committed"),
    ),
}


@pytest.fixture
def crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crashes:
    return Crashes(tmp_path, monkeypatch)


def slowly(env: us.Environment, lake: Path) -> None:
    failing(env, lake, rows_per_second=5_000)


@pytest.mark.parametrize("what", in_the_gate(list(KILLS), 3))
def test_a_letter_and_its_main_rows_are_there_once(tmp_path: Path, crashes: Crashes, what: str) -> None:
    crashes.arm(*KILLS[what])
    result = run_to_end(tmp_path, crashes, slowly, OFTEN)
    check(tmp_path / "lake")
    assert result.dead_letters.keys() == counts().keys()


def test_a_batch_job_and_who_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    env = us.Environment({"execution.runtime-mode": "BATCH", "parallelism.default": "2"}, target="local")
    failing(env, tmp_path / "lake")
    with env.execute_async("failing") as job:
        result = job.result()
        info = job.status()
    check(tmp_path / "lake")
    assert result.dead_letters == info.dead_letters == counts()
    metadata = job_metadata(info, info.submitted_ms)
    assert metadata["unistream/dead_letters"] == sum(counts().values())
    assert metadata["unistream/dead_letters_by_operator"].data == counts()


def skipping(env: us.Environment) -> None:
    rows = env.from_collection([{"fare": "7"}, {"fare": "free"}])
    rows.map(lambda row: {"fare": int(row["fare"])}, on_error="skip").name("fares").print()


@pytest.mark.parametrize("as_json", [False, True], ids=["for people", "for programs"])
def test_the_end_of_a_run_says_what_was_skipped(
    as_json: bool,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    words = ["run", "test_dead_letters:skipping", "-t", "local", "-p", "1"]
    assert main([*words, "--json"] if as_json else words) == 0
    out, _ = capfd.readouterr()
    if as_json:
        assert json.loads(out)["skipped_rows"] == {"fares": 1}
    else:
        assert "fares: 1 row skipped" in out
