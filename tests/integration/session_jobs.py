"""Jobs of a session cluster, as tests over its REST API end them."""

from __future__ import annotations

from tests.eventually import WAIT_S, eventually
from unistream.base.ids import JobId
from unistream.client.rest_client import RestClient


def stop(session: RestClient, job: JobId) -> None:
    """With a savepoint, as soon as one can be taken."""
    eventually(lambda: session.info(job).all_tasks_run, "all its tasks run", WAIT_S)
    session.client(job).stop()
