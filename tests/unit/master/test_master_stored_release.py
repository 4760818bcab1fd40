"""A job that was submitted to another series waits for its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

import unistream
from tests.eventually import WAIT_S, eventually
from tests.unit.master.conftest import request
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.test_master_recovery import Succession, is_in
from unistream.base.errors import ConfigError
from unistream.model import messages as msg

Make = Callable[..., Any]


def test_code_of_another_series_is_not_opened_and_nothing_of_the_job_is_lost(
    make_cluster: Make, checkpointed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    succession = Succession(make_cluster(workers=ScriptedWorkers(ends=False)))
    with closing(succession):
        first = succession.cluster.dispatcher
        job = first.submit(request(config=checkpointed))
        succession.cluster.workers.await_message(msg.CheckpointCompleted, 2)
        first.kept_jobs.keep("mine", job)
        monkeypatch.setattr(unistream, "__version__", "99.1.0")
        second = succession.lead(ends=False)
        eventually(is_in(second, job, "SUSPENDED"), "it is not started", WAIT_S)
        failure = second.job(job).failure
        assert failure is not None
        assert "was submitted to unistream 0." in failure.message
        assert "and this is 99.1.0" in failure.message
        assert "'unistream cluster stop --savepoint'" in failure.message
        with pytest.raises(ConfigError, match=r"and this is 99\.1\.0"):
            second.kept_jobs.start("mine", "file:///nowhere", "again")
        monkeypatch.undo()
        third = succession.lead(ends=False)
        eventually(is_in(third, job, "RUNNING"), "its own version goes on with it", WAIT_S)
