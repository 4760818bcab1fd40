"""The process that looks into a table of letters: `python -m unistream.dead_letters.reading_process`.

A JobManager reads no table of a user itself: how much is in it nobody knows. See `base.bounded_process`.
"""

from __future__ import annotations

import os
import sys
from typing import Final

import msgspec

from unistream.base.bounded_process import READY, limit_self, memory_gave_out
from unistream.base.config import Configuration
from unistream.base.errors import Transient, UnistreamError
from unistream.base.limits import MIB
from unistream.base.object_stores import use_store
from unistream.dead_letters.ledger import Ledger
from unistream.dead_letters.listing import page_of
from unistream.dead_letters.replay import Chosen
from unistream.dead_letters.table import absolute, letters_at
from unistream.model.letter_pages import LettersPage, LettersQuestion, LettersRefusal

QUESTION_BYTES_MAX: Final = MIB


def main() -> None:
    """Reads one `LettersQuestion`, writes one answer."""
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    question = msgspec.json.decode(sys.stdin.buffer.read(QUESTION_BYTES_MAX), type=LettersQuestion)
    limit_self(memory_bytes=question.limits.memory_bytes, seconds=question.limits.seconds)
    try:
        answer: LettersPage | LettersRefusal = answered(question)
    except Exception as error:
        answer = _refusal(error, question)
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    sys.stdout.buffer.flush()
    os._exit(0)  # threads of libraries are not waited for


def _refusal(error: Exception, question: LettersQuestion) -> LettersRefusal:
    """Raises: `error`, where it is none of the limits and none of unistream's own."""
    if memory_gave_out(error):
        most = question.limits.memory_bytes // MIB
        return LettersRefusal(
            why=f"to read the table takes more than the {most} MiB of memory that a look at it may have; "
            "`unistream dead-letters` has no such limit"
        )
    if isinstance(error, UnistreamError):
        return LettersRefusal(why=str(error), is_away=isinstance(error, Transient))
    raise error


def answered(question: LettersQuestion) -> LettersPage:
    """Raises ConfigError, Unreachable: as `rows_at`."""
    use_store(Configuration(question.store))
    uri = absolute(question.table)
    letters = letters_at(uri)
    replayed = frozenset(Ledger(uri).replayed()["letter"].to_pylist())
    chosen = Chosen(operator=question.operator or None, error_type=question.error_type or None)
    return page_of(letters, replayed, chosen, question.limits)


if __name__ == "__main__":
    main()
