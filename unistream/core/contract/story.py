"""A state that moves only along its table, and keeps its last transitions."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final, Generic, TypeVar

from unistream.base.errors import ProtocolError

S = TypeVar("S", bound=Enum)

STORY_STEPS_MAX: Final = 20  # a whole attempt and the restart before it


class IllegalTransition(ProtocolError):
    """A transition that the table does not have; carries the last ones."""

    def __init__(self, *, subject: str, state: Enum, wanted: Enum, why: str, story: tuple[str, ...]) -> None:
        steps = "".join(f"\n  {step}" for step in story)
        super().__init__(f"{subject}: {state.name} -> {wanted.name} ({why}) is not allowed; before:{steps}")
        self.story = story


class StateLog(Generic[S]):
    """The state of one subject.

    >>> class Door(Enum):
    ...     OPEN = 1
    ...     SHUT = 2
    >>> door = StateLog("door", Door.OPEN, {Door.OPEN: frozenset({Door.SHUT}), Door.SHUT: frozenset()})
    >>> door.to(Door.SHUT, "wind")
    >>> door.state.name, door.is_terminal, door.story
    ('SHUT', True, ('OPEN -> SHUT: wind',))
    """

    __slots__ = ("_state", "_story", "_subject", "_table")

    def __init__(self, subject: str, start: S, table: Mapping[S, Collection[S]]) -> None:
        self._subject = subject
        self._state = start
        self._table = table
        self._story: deque[str] = deque(maxlen=STORY_STEPS_MAX)

    @property
    def state(self) -> S:
        return self._state

    @property
    def is_terminal(self) -> bool:
        """No step leads out of the current state."""
        return not self._table[self._state]

    @property
    def story(self) -> tuple[str, ...]:
        """The last steps, oldest first, each with its reason."""
        return tuple(self._story)

    def to(self, state: S, why: str) -> None:
        """Moves to `state`.

        Raises:
            IllegalTransition: the table has no such transition.
        """
        if state not in self._table[self._state]:
            raise IllegalTransition(
                subject=self._subject, state=self._state, wanted=state, why=why, story=self.story
            )
        self._story.append(f"{self._state.name} -> {state.name}: {why}")
        self._state = state
