"""Two-phase commit: contracts in words, and traces of Java classes that have no counterpart here."""

from __future__ import annotations

from typing import Final

from unistream.testing.conformance.case import Shape

SHAPES: Final[tuple[Shape, ...]] = ()
PROSE: Final[dict[str, str]] = {
    "twoPhaseCommitSinkFunction": "a sink base class of before Sink V2, which is not built",
    "committerOperator": "given, when and expected in words, not in steps that a machine could play",
}
