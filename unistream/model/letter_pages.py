"""Dead letters as somebody looks at them: counted by operator and error, and some of them with their rows."""

from __future__ import annotations

import msgspec

from unistream.base.limits import MIB


class LetterLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one look at a table.

    Attributes:
        letters: That are shown; all are counted.
        text_characters: Of a row, and of an error; a longer one is cut.
        answer_bytes: Of all texts together; the letters after them are left out.
        memory_bytes: Of the process that reads the table, which is read whole.
        seconds: From its start to its end.
    """

    letters: int = 200
    text_characters: int = 10_000
    answer_bytes: int = 4 * MIB
    memory_bytes: int = 1_024 * MIB
    seconds: int = 20


class LettersQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """`operator`: by uid or name, `error_type`: by class; "": any. `store`: options of the store in which the
    table is; they may hold secrets, so they go by a pipe alone."""

    table: str
    operator: str
    error_type: str
    limits: LetterLimits
    store: dict[str, str] = {}


class LetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Letters of one operator with one error. `attempts`: the most of one of them."""

    operator: str
    operator_uid: str
    error_type: str
    letters: int
    replayed: int
    attempts: int
    first_ms: int | None
    last_ms: int | None


class LetterShown(msgspec.Struct, frozen=True, kw_only=True):
    """One letter.

    Attributes:
        row: As JSON; of a source the record's value as text. `is_cut`: it is longer, and cannot be corrected
            here.
        error_at: The last line of the user's code: `FILE:LINE`.
        replay_of: The letter that was replayed and failed again.
    """

    letter: str
    row: str
    is_cut: bool
    error_type: str
    error: str
    error_at: str | None
    operator: str
    operator_uid: str
    attempt: int
    replay_of: str | None
    replayed: bool
    time_ms: int | None
    event_time_ms: int | None


class LettersPage(msgspec.Struct, frozen=True, kw_only=True, tag="letters"):
    """What one table has: all letters in groups, and the newest of those that were asked for.

    Attributes:
        are_records: They are records that a source could not read.
        more: How many of those that were asked for are not shown.
        no_replay: Why the cluster cannot replay them by itself; null: it can.
    """

    are_records: bool
    groups: tuple[LetterGroup, ...]
    letters: tuple[LetterShown, ...]
    more: int
    limits: LetterLimits
    no_replay: str | None = None


class LettersRefusal(msgspec.Struct, frozen=True, kw_only=True, tag="refusal"):
    """`is_away`: its store does not answer now."""

    why: str
    is_away: bool = False
