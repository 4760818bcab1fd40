"""The background process of `unistream run --detached`: a cluster for one job, and as long as that job.

    python -m unistream.cli.application <descriptor>  < one `Application` as MessagePack

It is started by `unistream.cli.detached` in a session of its own, with its log as stdout and stderr. To the
pipe `descriptor` it writes one line of JSON, an `Accepted` or a `Refused`, and closes it. From then on nobody
waits for it: it is found, stopped and cancelled like any cluster, and ends when its job has.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

import msgspec

from unistream.base.config import Configuration
from unistream.base.errors import UnistreamError
from unistream.cli.errors import JOB_FAILED, OK, complain, exit_code
from unistream.cli.logs import log_to_stderr
from unistream.cli.output import print_result
from unistream.client.embedded import EmbeddedCluster, EmbeddedJobClient
from unistream.client.job_client import JobResult
from unistream.client.submission import to_stdout
from unistream.master.job_setup import SubmitRequest


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """One job and the cluster that it gets. `config`: of the cluster."""

    target: str
    config: dict[str, str]
    request: SubmitRequest
    verbose: bool = False


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag="accepted"):
    """The job runs."""

    job: str
    url: str
    pid: int


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """There is no job; `code` is what the command exits with."""

    message: str
    code: int


Answer = Accepted | Refused


def serve(application: Application, answer_fd: int) -> int:
    """Runs the job to its end, or until SIGTERM, SIGINT or DELETE /cluster. The exit code of the process."""
    over = threading.Event()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _end_by_signal(over)
    answers = _Answers(answer_fd)
    try:
        config = Configuration(application.config)
        with EmbeddedCluster(
            application.target, config, on_shutdown_request=over.set, show=to_stdout
        ) as cluster:
            _end_by_signal(over)  # Spark has put its own in their place
            job = cluster.submit(application.request)
            answers.say(Accepted(job=job.job_id, url=cluster.rest_url or "", pid=os.getpid()))
            result = _wait(job, over)
    except BrokenPipeError:
        complain("whoever submitted the job is gone, so it was given up")
        return JOB_FAILED
    except UnistreamError as error:
        complain(str(error))
        answers.say(Refused(message=str(error), code=exit_code(error)))
        return exit_code(error)
    if result is None:
        complain("the cluster was asked to end; its job was suspended")
        return JOB_FAILED
    print_result(result)
    if result.failure is not None:
        complain(f"job {result.name!r} ended as {result.state}: {result.failure.message}")
    return OK if result.is_success else JOB_FAILED


class _Answers:
    """The pipe to the command that started this process; takes one answer, and drops what comes later."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def say(self, answer: Answer) -> None:
        """Raises BrokenPipeError: nobody listens."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with os.fdopen(descriptor, "wb") as pipe:
                pipe.write(msgspec.json.encode(answer) + b"\n")


def _end_by_signal(over: threading.Event) -> None:
    def end(_signal: int, _frame: FrameType | None) -> None:
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


def _wait(job: EmbeddedJobClient, over: threading.Event) -> JobResult | None:
    """The job's result; None if the cluster is to end first."""
    results: list[JobResult] = []

    def watch() -> None:
        results.append(job.wait())
        over.set()

    threading.Thread(target=watch, name="job-end", daemon=True).start()
    over.wait()
    return results[0] if results else None


def main() -> int:
    """Reads the application from stdin and runs it."""
    application = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Application)
    log_to_stderr(application.verbose)
    return serve(application, int(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(main())
