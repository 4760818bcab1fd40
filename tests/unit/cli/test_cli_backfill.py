"""What `unistream backfill` refuses before it has looked at a job or a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from unistream.backfill.journal import BackfillJournal, BackfillOrder
from unistream.cli.main import main
from unistream.core.backfill import begun
from unistream.model.time_range import TimeRange

PIPELINE = "pipelines:build"
ORDER = BackfillOrder(
    id="0123456789ab",
    job_name="flights",
    range=TimeRange.parse("2026-01-01", "2026-02-01"),
    sink="lake",
    table="/lake",
    column="at",
    pipeline=PIPELINE,
    config={},
    target="local",
    job="ab" * 16,
)
JANUARY = ("--from", "2026-01-01", "--to", "2026-02-01")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--offline",), "a new backfill needs --pipeline, --from, --to"),
        (("--offline", "--pipeline", PIPELINE, "--from", "2026-01-01"), "a new backfill needs --to"),
        (
            ("--offline", "--pipeline", PIPELINE, "--from", "2026-02-01", "--to", "2026-01-01"),
            "is not before --to 2026-01-01",
        ),
        (("--offline", "--abort"), "there is no unfinished backfill of job 'flights'"),
    ],
)
def test_what_is_missing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], text: str
) -> None:
    assert main(["backfill", "flights", "--state", str(tmp_path), *words]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("--from", "2026-01-01", "--to", "2026-01-02"),
            "an unfinished backfill of another range or pipeline",
        ),
        (("--pipeline", "others:build"), "an unfinished backfill of another range or pipeline"),
        ((*JANUARY, "--dry-run"), "the backfill is unfinished (done: stopping)"),
        (JANUARY, "there is no module 'pipelines'"),
    ],
)
def test_an_unfinished_one_goes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], text: str
) -> None:
    """By the name of the job or its id, with how to go on and how to give it up."""
    BackfillJournal.create(tmp_path, ORDER, begun(stops_job=True))
    for job in ("flights", "abab"):
        assert main(["backfill", job, "--state", str(tmp_path), *words]) == 2
        said = capsys.readouterr().err
        assert text in said
        if "unfinished" in text:
            command = f"unistream backfill flights --state {tmp_path}"
            assert f"go on with '{command}', or give it up with '{command} --abort'" in said
