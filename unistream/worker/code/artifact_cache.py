"""User code of the jobs that run here: fetched once per process, opened once per task."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from unistream.base.errors import ProtocolError
from unistream.base.ids import JobId
from unistream.model.chain import JobCode
from unistream.model.messages import Answer, Artifact, FetchArtifact, Refused
from unistream.worker.code.artifact import load

ARTIFACTS_KEPT: Final = 2  # a process serves one job, and perhaps the next one


class ArtifactCache:
    """Content by SHA-256. Each `open` returns new objects: tasks share nothing."""

    def __init__(self, fetch: Callable[[FetchArtifact], Answer]) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._content: OrderedDict[str, bytes] = OrderedDict()

    def open(self, job: JobId, sha256: str) -> JobCode:
        """The code of `job`.

        Raises:
            ProtocolError: the master has no such artifact, or sent another.
            UserCodeError: it cannot be opened here.
            Unreachable: the master did not answer.
        """
        with self._lock:  # the tasks of a job start together: one fetches, the others wait for it
            content = self._content.get(sha256)
            if content is None:
                content = self._ask(job, sha256)
            code = load(content, sha256)
            self._content[sha256] = content
            self._content.move_to_end(sha256)
            while len(self._content) > ARTIFACTS_KEPT:
                self._content.popitem(last=False)
        return code

    def _ask(self, job: JobId, sha256: str) -> bytes:
        answer = self._fetch(FetchArtifact(job=job, sha256=sha256))
        if isinstance(answer, Artifact):
            return answer.content
        reason = answer.reason if isinstance(answer, Refused) else "no artifact in the answer"
        raise ProtocolError(f"the master did not send artifact {sha256}: {reason}")
