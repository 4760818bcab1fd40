"""The background process of `unistream run --detached`: a cluster that runs one job and ends with it.

    python -m unistream.cli.application <descriptor>  < one `Application` as MessagePack

It is started by `unistream.cli.detached` in a session of its own, with its log as stdout and stderr. To the
pipe `descriptor` it writes one line of JSON, an `ApplicationStarted` or an `ApplicationRefused`, and closes
it. From then on it is found and its job stopped or cancelled as in any cluster.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import msgspec

from unistream.base.config import Configuration
from unistream.base.errors import UnistreamError
from unistream.cli.ending import StopSignals
from unistream.cli.errors import JOB_FAILED, OK, complain, exit_code, log_to_stderr
from unistream.cli.output import print_result
from unistream.client.embedded.embedded_cluster import ClusterListener, EmbeddedCluster, EmbeddedJobClient
from unistream.client.job.submission import to_stdout
from unistream.client.remote.job_client import JobResult
from unistream.model.submission import SubmitRequest


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """One job and its cluster. `config`: of the cluster."""

    target: str
    config: dict[str, str]
    request: SubmitRequest
    verbose: bool = False


class ApplicationStarted(msgspec.Struct, frozen=True, kw_only=True, tag="accepted"):
    """The job runs."""

    job: str
    url: str
    pid: int


class ApplicationRefused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """There is no job; `code` is the exit code of the command."""

    message: str
    code: int


Answer = ApplicationStarted | ApplicationRefused


def serve(application: Application, answer_fd: int) -> int:
    """Runs the job to its end, or until SIGTERM, SIGINT or DELETE /cluster. Returns the exit code."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopSignals() as ending:
        return _serve(application, answer_fd, ending)


def _serve(application: Application, answer_fd: int, ending: StopSignals) -> int:
    answers = _Answers(answer_fd)
    try:
        config = Configuration(application.config)
        with EmbeddedCluster(
            application.target,
            config,
            session=False,
            listener=ClusterListener(on_shutdown_request=ending.requested.set, show=to_stdout),
        ) as cluster:
            ending.claim()  # Spark has replaced the handlers
            ending.abandon = cluster.dispatcher.abandon
            job = cluster.submit(application.request)
            answers.say(ApplicationStarted(job=job.job_id, url=cluster.rest_url or "", pid=os.getpid()))
            result = _wait(job, ending.requested)
    except BrokenPipeError:
        complain("the command that submitted the job has ended, so this cluster shuts down")
        return JOB_FAILED
    except UnistreamError as error:
        complain(str(error))
        answers.say(ApplicationRefused(message=str(error), code=exit_code(error)))
        return exit_code(error)
    if result is None:
        complain("the cluster was shut down; its job was suspended")
        return ending.exit_code or JOB_FAILED
    print_result(result)
    if result.failure is not None:
        complain(f"job {result.name!r} ended as {result.state}: {result.failure.message}")
    return OK if result.is_success else JOB_FAILED


class _Answers:
    """The pipe to the command that started this process; it takes one answer and ignores later ones."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def say(self, answer: Answer) -> None:
        """Raises BrokenPipeError: the command has ended."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with os.fdopen(descriptor, "wb") as pipe:
                pipe.write(msgspec.json.encode(answer) + b"\n")


def _wait(job: EmbeddedJobClient, ending: threading.Event) -> JobResult | None:
    """The job's result; None if the cluster is shut down first."""
    results: list[JobResult] = []

    def watch() -> None:
        results.append(job.wait())
        ending.set()

    threading.Thread(target=watch, name="job-end", daemon=True).start()
    ending.wait()
    return results[0] if results else None


def main() -> int:
    """Reads the application from stdin and runs it."""
    application = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Application)
    log_to_stderr(application.verbose)
    return serve(application, int(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(main())
