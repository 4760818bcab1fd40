"""A job that has ended while no cluster runs: commands that look read the database that lists it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.given_metadata import ONE, job, job_id
from tests.unit.cli import screens
from unistream.base.config import Configuration
from unistream.base.errors import NotFound
from unistream.cli.main import main
from unistream.client.job.lookup import find_shown_job
from unistream.client.machine import home
from unistream.client.machine.job_history import RecordedJobClient, history_store
from unistream.master.shown.archive import archived
from unistream.metadata.schema import ensure
from unistream.metadata.store import SqlMetadataStore
from unistream.model.job_log_line import JobLogLine

ENDED_MS = 9
LINES = screens.answer("logs", list[JobLogLine])
Capture = pytest.CaptureFixture[str]


def recorded(*records: Any, archive: bool = True) -> None:
    """Jobs of the history of this user."""
    url = home.metadata_url(Configuration())
    ensure(url)
    store = SqlMetadataStore(url)
    try:
        for record in records:
            store.put_job(record, ONE)
            if archive:
                info = replace(screens.job("fares"), job=record.job, ended_ms=ENDED_MS)
                store.record_archive(archived(info, screens.snapshots("fares"), LINES), ONE)
    finally:
        store.close()


def failed(number: int, name: str = "fares") -> Any:
    return job(number, name=name, ended_ms=ENDED_MS, state="FAILED")


@pytest.mark.parametrize("named", ["fares", job_id(1), job_id(1)[:8]])
def test_its_name_and_its_id_find_it(named: str) -> None:
    recorded(failed(1))
    with find_shown_job(Configuration(), named) as found:
        assert isinstance(found, RecordedJobClient)
        assert found.status().failure == screens.job("fares").failure
        assert found.checkpoints() == screens.snapshots("fares")
        assert found.log() == LINES
        assert found.log(LINES[0].seq) == LINES[1:]


@pytest.mark.parametrize(
    ("command", "then"),
    [
        ("info", "fare is missing in flight 30777"),
        ("exceptions", "what ended the job, in the code of the pipeline"),
        ("logs", "flights: flight 30777 has no fare"),
        ("checkpoints", "9 completed, 0 failed"),
    ],
)
def test_each_command_shows_it(command: str, then: str, capsys: Capture) -> None:
    recorded(failed(1))
    assert main([command, "fares"]) == 0
    assert then in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "then"),
    [
        pytest.param(["nothing"], 3, "no cluster runs here", id="the database does not know it"),
        pytest.param([job_id(1)[:4]], 2, "matches 2 jobs", id="it could be several"),
        pytest.param(
            ["fares", "-m", "127.0.0.1:1", "-D", "client.timeout=50 ms"],
            3,
            "127.0.0.1:1",
            id="a cluster is named",
        ),
    ],
)
def test_what_is_not_shown(words: list[str], code: int, then: str, capsys: Capture) -> None:
    """The other commands find their job as this one does."""
    recorded(failed(1), failed(2, "other"))
    assert main(["info", *words]) == code
    assert then in capsys.readouterr().err


def test_what_a_job_without_an_archive_has_counted_is_not_known(capsys: Capture) -> None:
    recorded(failed(1), archive=False)
    assert main(["info", "fares"]) == 0
    shown = capsys.readouterr().out
    assert " 0 rows" not in shown
    assert "rows of tasks are not known" in shown


def test_a_job_that_is_pruned_meanwhile_is_not_found() -> None:
    recorded(failed(1))
    store = history_store(Configuration())
    assert store is not None
    with RecordedJobClient(store, job_id(2)) as gone, pytest.raises(NotFound, match="not in the history any"):
        gone.status()
