"""The process that cuts the job of a replay: `python -m unistream.dead_letters.replay_process`.

It opens the user's pipeline, which a JobManager never does. See `base.bounded_process`.
"""

from __future__ import annotations

import os
import sys

import msgspec

from unistream.base.bounded_process import READY, limit_self, memory_gave_out
from unistream.base.errors import Transient, UnistreamError
from unistream.base.limits import MIB
from unistream.dead_letters.clustered import prepared
from unistream.model.letter_pages import LettersRefusal
from unistream.model.letter_replays import ReplayAnswer, ReplayQuestion


def main() -> None:
    """Reads one `ReplayQuestion`, writes one `ReplayAnswer`, both msgpack."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the user's modules print is no answer
        out.write(READY)
        out.flush()
        question = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=ReplayQuestion)
        limits = question.limits
        limit_self(memory_bytes=limits.memory_bytes, seconds=limits.seconds, file_bytes=limits.file_bytes)
        out.write(msgspec.msgpack.encode(_answered(question)))
    os._exit(0)  # threads of libraries, and of the user's modules, are not waited for


def _answered(question: ReplayQuestion) -> ReplayAnswer:
    try:
        return prepared(question)
    except Exception as error:
        if memory_gave_out(error):
            most = question.limits.memory_bytes // MIB
            return LettersRefusal(
                why=f"to begin the replay takes more than the {most} MiB of memory that it may have; "
                "`unistream dead-letters replay` has no such limit"
            )
        if isinstance(error, UnistreamError):
            return LettersRefusal(why=str(error), is_away=isinstance(error, Transient))
        raise


if __name__ == "__main__":
    main()
