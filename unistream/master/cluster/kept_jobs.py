"""What was submitted of a job, kept beyond its end: so that an upgrade can go back to the old version.

    keep      while the job runs: its description and code stay, under a name of the client's
    start     a new job from them, with a savepoint; also with other options or another parallelism
    release   they go, unless another job needs them

A stream that has failed is kept by the cluster itself, under the name that the web UI takes. What a job with
dead letters was made of is kept, too: these can be replayed later.

At most `KEPT_MAX` are kept because a client needs them, as many because somebody may want to start them
again, and as many because of their dead letters; the oldest goes first. All are durable before they are
answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import structs

from unistream.base.clock import Clock
from unistream.base.errors import ConfigError, NotFound
from unistream.base.ids import JobId
from unistream.core.job import with_parallelism
from unistream.master.cluster.changed_submission import changed
from unistream.master.cluster.stored_release import check_stored
from unistream.master.store import JobStore, Leadership, place_of
from unistream.model.stored_job import KeptJob
from unistream.model.submission import SubmitRequest

NAME_CHARS_MAX: Final = 200
NOTHING: Final[Mapping[str, Any]] = {}


class KeptJobs:
    """See the module. Thread-safe; all methods raise Fenced, Unreachable and OutcomeUnknown as `JobStore`."""

    def __init__(
        self, jobs: JobStore, leadership: Leadership, clock: Clock, submit: Callable[[SubmitRequest], JobId]
    ) -> None:
        self._jobs = jobs
        self._leadership = leadership
        self._clock = clock
        self._submit = submit

    def keep(self, name: str, job: JobId, *, for_restart: bool = False) -> KeptJob:
        """Again with the same name and job it is kept as it is now: its parallelism may have been changed.

        Raises:
            NotFound: there is no such job, or it has ended.
            ConfigError: another job is kept under the name.
        """
        place = _place(name)
        self._leadership.demand()
        return self._jobs.keep(place, job, self._clock.wall_ms(), for_restart=for_restart)

    def kept(self, name: str) -> KeptJob:
        """The job that is kept under this name. Raises NotFound."""
        found = self._jobs.kept(_place(name))
        if found is None:
            raise NotFound(f"no job is kept under the name {name!r}")
        return found

    def kept_of(self, job: JobId) -> list[KeptJob]:
        """All that is kept of a job, under whatever names; the oldest first."""
        return self._jobs.kept_of(job)

    def release(self, name: str) -> None:
        """No effect if none is kept under the name."""
        self._leadership.demand()
        self._jobs.release(_place(name))

    def start(
        self,
        name: str,
        savepoint: str,
        request_id: str,
        *,
        config: Mapping[str, str] = NOTHING,
        parallelism: Mapping[str, int] = NOTHING,
    ) -> JobId:
        """A new job of what is kept; sent again under its request id it is the same one.

        Args:
            name: Under which it is kept.
            savepoint: Where it begins.
            request_id: Of the new job.
            config: Options that take the place of its own.
            parallelism: By vertex id, vertex name or operator uid.

        Raises:
            NotFound: none is kept under the name.
            ConfigError, CorruptSnapshot: as `Dispatcher.submit` and `changed_submission.changed`.
        """
        wanted = changed(self._submitted(name), config, parallelism)
        return self._submit(structs.replace(wanted, savepoint=savepoint, request_id=request_id))

    def check(self, name: str, config: Mapping[str, str], parallelism: Mapping[str, int]) -> None:
        """Whether it could be started so, as far as that is known before its savepoint is. Raises as
        `start`."""
        changed(self._submitted(name), config, parallelism)

    def _submitted(self, name: str) -> SubmitRequest:
        stored, code, pipeline = self._jobs.load_kept(self.kept(name))
        check_stored(stored)
        graph = with_parallelism(stored.graph, stored.parallelism) if stored.parallelism else stored.graph
        return SubmitRequest(
            graph=graph,
            artifact=code,
            config=stored.config,
            allow_non_restored=stored.allow_non_restored,
            given=stored.given,
            pipeline=pipeline,
        )


def _place(name: str) -> str:
    if not 0 < len(name) <= NAME_CHARS_MAX:
        raise ConfigError(f"the name under which a job is kept has 1 to {NAME_CHARS_MAX} characters")
    return place_of(name)
