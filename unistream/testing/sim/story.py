"""The story of a run: what happened, when and between whom. Lines for people, or a file for a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

VERSION: Final = 1


class StoryLine(msgspec.Struct, frozen=True):
    """Something that happened.

    Attributes:
        at_ms: Virtual time since the start of the run.
        source: The process where it happened, or that has sent the message; "": that of nobody.
        target: The process that got the message; "": it is none.
        lost: The message did not arrive.

    >>> print(StoryLine(1250.0, "worker-1 is up", "worker-1"))
        1.2500 s  worker-1 is up
    """

    at_ms: float
    text: str
    source: str = ""
    target: str = ""
    lost: bool = False

    def __str__(self) -> str:
        return f"{self.at_ms / 1000:10.4f} s  {self.text}"


class StoryFile(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag="unistream-story"):
    """What `unistream simulate --story-file` writes and the page *Simulation* of the web UI reads.

    Attributes:
        title: Which pipeline, and which seed.
        reason: What was wrong; "": nothing.
        faults: The kinds of faults of the run, and how often they come.
    """

    version: int = VERSION
    title: str
    reason: str
    faults: str
    lines: Sequence[StoryLine]

    def write(self, path: Path) -> None:
        """Writes the story to a file. Raises OSError."""
        path.write_bytes(msgspec.json.encode(self))
