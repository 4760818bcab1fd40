"""Jobs of a session cluster, and what commands report to it, as tests see them over its REST API."""

from __future__ import annotations

import msgspec

from tests.eventually import WAIT_S, eventually
from unistream.base.ids import JobId
from unistream.client.remote.answers import decode
from unistream.client.remote.procedures import PATH
from unistream.client.remote.rest_client import RestClient
from unistream.model.procedures import Procedure, ProcedureReport


class _Procedures(msgspec.Struct, frozen=True):
    procedures: list[Procedure]


def stop(session: RestClient, job: JobId) -> None:
    """With a savepoint, as soon as one can be taken."""
    eventually(lambda: session.info(job).all_tasks_run, "all its tasks run", WAIT_S)
    session.client(job).stop()


def procedures(session: RestClient) -> list[ProcedureReport]:
    """The one with the newest report first."""
    return [one.report for one in decode(session.request("GET", PATH), _Procedures).procedures]
