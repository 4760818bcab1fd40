"""The process that plans one pipeline: `python -m unistream.planning.process`.

It runs the user's code, which a JobManager never does. See `base.bounded_process`.
"""

from __future__ import annotations

import os
import sys

import msgspec

from unistream.base.bounded_process import READY, limit_self, memory_gave_out
from unistream.base.errors import Transient, UnistreamError, UserCodeError
from unistream.base.limits import MIB
from unistream.base.user_files import raised_at, users_part
from unistream.model.pipeline_plans import PlanAnswer, PlanQuestion, PlanRefused
from unistream.planning.planned import planned

FRAMES_CHARS_MAX = 20_000  # of a traceback: its end is where the error is


def main() -> None:
    """Reads one `PlanQuestion`, writes one `PlanAnswer`, both msgpack."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the user's modules print is no answer
        out.write(READY)
        out.flush()
        question = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=PlanQuestion)
        limits = question.limits
        limit_self(memory_bytes=limits.memory_bytes, seconds=limits.seconds, file_bytes=limits.file_bytes)
        out.write(msgspec.msgpack.encode(_answered(question)))
    os._exit(0)  # threads of libraries, and of the user's modules, are not waited for


def _answered(question: PlanQuestion) -> PlanAnswer:
    try:
        return planned(question)
    except (Exception, SystemExit) as error:  # a module may call sys.exit() where it is imported
        if memory_gave_out(error):
            most = question.limits.memory_bytes // MIB
            return PlanRefused(
                why=f"to plan the pipeline takes more than the {most} MiB of memory that it may have; "
                "'unistream run' has no such limit"
            )
        return _refused(error, question.entry_point)


def _refused(error: BaseException, entry_point: str) -> PlanRefused:
    """The refusal, with the frames of the user's own code in what was raised there."""
    raised = error.__cause__ if isinstance(error, UserCodeError) and error.__cause__ else error
    frames = users_part(raised)[-FRAMES_CHARS_MAX:] if raised_at(raised.__traceback__) else ""
    if isinstance(error, UnistreamError):
        return PlanRefused(why=str(error), frames=frames, is_away=isinstance(error, Transient))
    return PlanRefused(why=f"{entry_point} raised {type(error).__name__}: {error}", frames=frames)


if __name__ == "__main__":
    main()
