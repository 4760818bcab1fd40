"""Runs the long targets of the Makefile one after the other, and goes on where it was stopped.

    python -m tests.night TARGET…       those that have not passed at this commit; then the table of all
    python -m tests.night --table TARGET…

What has passed at which commit is kept in ``nightly.json`` in the cache folder: ``{commit: {target: Ran}}``.
A tree with changes that are not committed is another commit. What failed, or was stopped, runs again.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

KEPT_COMMITS: Final = 50
PASSED, FAILED, NOT_RUN = "passed", "FAILED", "not run"


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How a target ended; `began` is in seconds since 1970."""

    result: str
    seconds: float
    began: float


Kept = dict[str, dict[str, Ran]]


def commit_of(tree: Path) -> str:
    """HEAD, and a hash of what differs from it."""

    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=tree, check=True, capture_output=True, timeout=60).stdout

    head = git("rev-parse", "--short=12", "HEAD").decode().strip()
    changed = git("status", "--porcelain")
    if not changed:
        return head
    return f"{head}+{hashlib.sha256(changed + git('diff', 'HEAD')).hexdigest()[:8]}"


class Night:
    """What has passed, in `file`; `make` runs a target and returns whether it passed."""

    def __init__(
        self, file: Path, commit: str, make: Callable[[str], bool], now: Callable[[], float] = time.time
    ) -> None:
        self._file, self._commit, self._make, self._now = file, commit, make, now

    def run(self, targets: Sequence[str]) -> bool:
        """Runs what has not passed at this commit, to the last target; whether all have."""
        for target in targets:
            if self._result(target) == PASSED:
                print(f"{target}: has passed at {self._commit}", flush=True)
                continue
            began = self._now()
            result = PASSED if self._make(target) else FAILED
            self._keep(target, Ran(result=result, seconds=self._now() - began, began=began))
        return all(self._result(target) == PASSED for target in targets)

    def table(self, targets: Sequence[str]) -> str:
        ran = self._read().get(self._commit, {})
        lines = [f"{'target':18s} {'commit':21s} {'result':8s} minutes"]
        for target in targets:
            one = ran.get(target)
            minutes = f"{one.seconds / 60:7.1f}" if one else "      –"
            lines.append(f"{target:18s} {self._commit:21s} {one.result if one else NOT_RUN:8s} {minutes}")
        return "\n".join(lines)

    def _result(self, target: str) -> str:
        one = self._read().get(self._commit, {}).get(target)
        return one.result if one else NOT_RUN

    def _read(self) -> Kept:
        return msgspec.json.decode(self._file.read_bytes(), type=Kept) if self._file.exists() else {}

    def _keep(self, target: str, ran: Ran) -> None:
        """Whole or not at all: who is killed here runs the target again."""
        kept = self._read()
        of_commit = kept.pop(self._commit, {})
        kept[self._commit] = {**of_commit, target: ran}  # the newest last
        newest = dict(list(kept.items())[-KEPT_COMMITS:])
        self._file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(newest)))
        fresh.replace(self._file)


def make(target: str) -> bool:
    return subprocess.run(["make", "--no-print-directory", target], check=False).returncode == 0


def main(words: list[str]) -> int:
    file = Path(os.environ["UNISTREAM_CACHE"]) / "nightly.json"
    night = Night(file, commit_of(Path(__file__).parents[1]), make)
    targets = [word for word in words if word != "--table"]
    passed = True
    try:
        if "--table" not in words:
            passed = night.run(targets)
    finally:
        print(night.table(targets), flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
