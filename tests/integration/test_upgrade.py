"""A job is replaced by another version of its pipeline, or goes on as it was: no row lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.integration.crash_runs import in_the_gate
from tests.integration.session_jobs import stop
from unistream.api.upgrade import is_other_version, upgraded
from unistream.base.errors import ConfigError
from unistream.base.ids import JobId, job_of_request
from unistream.client.job.upgrade import WentBack, _Run
from unistream.client.remote.kept_jobs import KeptJobsClient
from unistream.client.remote.rest_client import RestClient

CONFIG = {
    "execution.runtime-mode": "STREAMING",
    "execution.checkpointing.interval": "300 ms",
    "restart-strategy.type": "none",
}


class Numbered(us.KeyedProcessFunction):
    """Numbers the rows of each key, by state: a gap or a double shows state that was lost."""

    def __init__(self, version: str, kind: pa.DataType | None = None) -> None:
        self._version = version
        self._seen = us.ValueStateDescriptor("seen", kind or pa.int64())

    def process_element(self, row, context, out):  # type: ignore[no-untyped-def]
        if self._version == "fails":
            raise ValueError("this version is broken")
        seen = context.state(self._seen)
        number = (seen.value() or 0) + 1
        seen.update(number)
        out.emit({**row, "number": number, "version": self._version})


class Hangs(Numbered):
    def open(self, context) -> None:  # type: ignore[no-untyped-def]
        raise OSError("its own system is away")


def version(lake: Path, function: us.KeyedProcessFunction, **config: str) -> us.Environment:
    env = us.Environment({**CONFIG, **config}, target="remote")
    columns = {"id": us.datagen.Sequential(), "key": us.datagen.RandomInt(0, 4)}
    source = us.DatagenSource(columns, rows=None, bounded=False, rows_per_second=1_000)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    result = {"id": pa.int64(), "key": pa.int64(), "number": pa.int64(), "version": pa.string()}
    numbered = rows.key_by("key").process(function, returns=result).uid("numbered")
    numbered.sink_to(us.DeltaSink(str(lake))).uid("lake")
    return env


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def started(session: RestClient, env: us.Environment) -> JobId:
    job = env.execute_async("numbers")
    eventually(lambda: session.info(job.job_id).checkpoints_completed > 0, "its first checkpoint", WAIT_S)
    job.close()
    return job.job_id


def assert_exact(lake: Path) -> list[str]:
    """No id is missing or twice, and no key's state was lost; the versions in the order of the rows."""
    rows = DeltaTable(str(lake)).to_pyarrow_table().sort_by("id").to_pylist()
    assert [row["id"] for row in rows] == list(range(len(rows)))
    seen: dict[int, int] = {}
    for row in rows:
        seen[row["key"]] = seen.get(row["key"], 0) + 1
        assert row["number"] == seen[row["key"]]
    return list(dict.fromkeys(row["version"] for row in rows))


def test_the_new_version_goes_on_where_the_old_one_was_stopped(session: RestClient, lake: Path) -> None:
    old = started(session, version(lake, Numbered("first")))
    second = version(lake, Numbered("second"))
    assert is_other_version(second, "numbers", session.info(old))
    assert not is_other_version(version(lake, Numbered("first")), "numbers", session.info(old))
    notes: list[str] = []
    new = upgraded(second, old, name="numbers", request_id="up", note=notes.append)
    assert new == job_of_request("up")
    assert session.info(old).state == "FINISHED"
    assert session.info(new).state == "RUNNING"
    assert KeptJobsClient(session).kept("up") is None, "the old version is not needed any more"
    assert upgraded(second, old, name="numbers", request_id="up") == new, "the same again changes nothing"
    assert len(notes) == 3
    stop(session, new)
    assert assert_exact(lake) == ["first", "second"]


BROKEN: dict[str, tuple[Callable[[], us.KeyedProcessFunction], dict[str, str], str]] = {
    "fails": (lambda: Numbered("fails"), {}, "this version is broken"),
    "never up": (
        lambda: Hangs("second"),
        {
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000",
            "restart-strategy.fixed-delay.delay": "200 ms",
        },
        r"no checkpoint within 4 s \(.*its own system is away",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_version_that_does_not_come_up_gives_way_to_the_old_one(
    session: RestClient, lake: Path, case: str
) -> None:
    make, config, reason = BROKEN[case]
    old = started(session, version(lake, Numbered("first")))
    broken = version(lake, make(), **config)
    with pytest.raises(WentBack, match=reason) as went:
        upgraded(broken, old, name="numbers", request_id="up", first_checkpoint_s=4.0)
    back = went.value.job
    assert back == job_of_request("up back")
    rows = DeltaTable(str(lake)).to_pyarrow_table().num_rows
    eventually(
        lambda: DeltaTable(str(lake)).to_pyarrow_table().num_rows > rows, "the old version writes on", WAIT_S
    )
    with pytest.raises(WentBack):
        upgraded(broken, old, name="numbers", request_id="up", first_checkpoint_s=4.0)
    assert [job.job for job in session.jobs() if job.state == "RUNNING"] == [back]
    assert not is_other_version(version(lake, Numbered("first")), "numbers", session.info(back))
    stop(session, back)
    assert assert_exact(lake) == ["first"]


def test_a_version_that_cannot_take_the_state_is_refused_and_the_job_is_not_touched(
    session: RestClient, lake: Path
) -> None:
    old = started(session, version(lake, Numbered("first")))
    eventually((lake / "_delta_log").exists, "a checkpoint has its state", WAIT_S)
    with pytest.raises(ConfigError, match="operator 'numbered', state 'seen'"):
        upgraded(version(lake, Numbered("other", pa.string())), old, name="numbers", request_id="up")
    assert session.info(old).state == "RUNNING"
    assert KeptJobsClient(session).kept("up") is None
    stop(session, old)
    assert assert_exact(lake) == ["first"]


class Killed(BaseException):
    """The client dies here."""


MOMENTS = [
    (moment, dies)
    for dies in ("_check_and_keep", "_stop", "_submit", "_go_back")
    for moment in ("before", "behind")
]


@pytest.mark.parametrize(("moment", "dies"), in_the_gate(MOMENTS, 3, -1))
def test_a_client_that_dies_anywhere_is_followed_by_one_that_goes_on(
    session: RestClient, lake: Path, monkeypatch: pytest.MonkeyPatch, moment: str, dies: str
) -> None:
    old = started(session, version(lake, Numbered("first")))
    goes_back = dies == "_go_back"
    new = version(lake, Numbered("fails")) if goes_back else version(lake, Numbered("second"))
    real = getattr(_Run, dies)

    def dying(run: _Run, *arguments: object) -> None:
        if moment == "behind":
            real(run, *arguments)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(_Run, dies, dying)
        with pytest.raises(Killed):
            upgraded(new, old, name="numbers", request_id="up")
    if goes_back:
        with pytest.raises(WentBack) as went:
            upgraded(new, old, name="numbers", request_id="up")
        last = went.value.job
    else:
        last = upgraded(new, old, name="numbers", request_id="up")
    assert [job.job for job in session.jobs() if job.ended_ms is None] == [last]
    stop(session, last)
    assert assert_exact(lake) == (["first"] if goes_back else ["first", "second"])


def test_a_job_that_was_lost_has_nothing_to_upgrade(session: RestClient, lake: Path) -> None:
    env = version(lake, Numbered("first"))
    with pytest.raises(ConfigError, match="has ended and left no snapshot"):
        upgraded(env, JobId("f" * 32), name="numbers", request_id="up")
    with pytest.raises(ConfigError, match="1 to 190 characters"):
        upgraded(env, JobId("f" * 32), name="numbers", request_id="x" * 191)
