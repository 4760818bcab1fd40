"""Runs the long targets of the Makefile in this folder one after the other, and goes on where it was stopped.

    python -m tests.night TARGET…       those that have not passed at this commit; then the table of all
    python -m tests.night --table TARGET…

What has passed at which commit is kept in ``nightly.json`` in the cache folder: ``{commit: {target: Ran}}``;
what a target has said the last time, in ``nightly/TARGET.log`` there. A tree with changes that are not
committed is another commit, and one that changes meanwhile has passed nothing. What failed, or was stopped,
runs again. There is one night at a time for each cache folder: targets share it, and slow each other down.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn

import msgspec

KEPT_COMMITS: Final = 50
PASSED, FAILED, NOT_RUN = "passed", "FAILED", "not run"
ENDS_WITHIN_S: Final = 120.0  # tests that are interrupted end their servers


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How a target ended; `began` is in seconds since 1970."""

    result: str
    seconds: float
    began: float


Kept = dict[str, dict[str, Ran]]


class TreeChanged(Exception):
    """While a target ran: nobody can say what it has tested."""


def commit_of(tree: Path) -> str:
    """HEAD, and a hash of what differs from it, new files included."""

    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=tree, check=True, capture_output=True, timeout=60).stdout

    head = git("rev-parse", "--short=12", "HEAD").decode().strip()
    changed = git("status", "--porcelain")
    if not changed:
        return head
    differs = hashlib.sha256(changed + git("diff", "HEAD"))
    for name in sorted(git("ls-files", "--others", "--exclude-standard", "-z").split(b"\0")):
        with suppress(
            FileNotFoundError, IsADirectoryError
        ):  # gone meanwhile; the end of the list, another repository
            differs.update(name + (tree / os.fsdecode(name)).read_bytes())
    return f"{head}+{differs.hexdigest()[:8]}"


class Night:
    """What has passed, in `file`.

    Args:
        file: Is written behind each target.
        commit: What the tree is now.
        make: Runs a target, and returns whether it passed.
        now: Seconds since 1970.
    """

    def __init__(
        self,
        file: Path,
        commit: Callable[[], str],
        make: Callable[[str], bool],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._file, self._commit_now, self._make, self._now = file, commit, make, now
        self._commit = commit()

    def run(self, targets: Sequence[str]) -> bool:
        """Runs what has not passed at this commit, to the last target; whether all have.

        Raises:
            TreeChanged: meanwhile; what ran then is not kept.
        """
        for target in targets:
            if self._result(target) == PASSED:
                print(f"{target}: has passed at {self._commit}", flush=True)
                continue
            began = self._now()
            result = PASSED if self._make(target) else FAILED
            if (commit := self._commit_now()) != self._commit:
                raise TreeChanged(
                    f"the tree was {self._commit} and is {commit}: that {target} {result} counts for neither;"
                    " start the night again, best in a worktree of its own"
                )
            self._keep(target, Ran(result=result, seconds=self._now() - began, began=began))
        return all(self._result(target) == PASSED for target in targets)

    def table(self, targets: Sequence[str]) -> str:
        """A line for each; of one that has not passed, the last commit at which it had."""
        kept = self._read()
        lines = [f"{'target':18s} {'commit':21s} {'result':8s} minutes  passed last at"]
        for target in targets:
            one = kept.get(self._commit, {}).get(target)
            minutes = f"{one.seconds / 60:7.1f}" if one else "      –"
            passed = [
                commit for commit, ran in kept.items() if target in ran and ran[target].result == PASSED
            ]
            line = f"{target:18s} {self._commit:21s} {one.result if one else NOT_RUN:8s} {minutes}"
            lines.append(f"{line}  {passed[-1] if passed else '–'}")
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
        fresh = self._file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(newest)))
        fresh.replace(self._file)


@contextmanager
def alone(file: Path) -> Iterator[int]:
    """A file that this process and those that it passes it on to hold. SystemExit: another night does."""
    with file.open("a+") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.seek(0)
            sys.exit(f"a night runs already, or a target of one that was killed: process group {held.read()}")
        yield held.fileno()


def made(target: str, log: Path, lock: int) -> bool:
    """`make TARGET` in a process group of its own, which ends with this process unless that is killed."""
    pipe = 'make --no-print-directory "$0" 2>&1 | tee -i "$1"'
    command = ["bash", "-o", "pipefail", "-c", pipe, target, str(log)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0, pass_fds=(lock,))
    os.ftruncate(lock, 0)
    os.write(lock, str(process.pid).encode())
    try:
        return process.wait() == 0
    except BaseException:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(ENDS_WITHIN_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        raise


def _stop(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


def main(words: list[str]) -> int:
    cache, tree = Path(os.environ["UNISTREAM_CACHE"]), Path.cwd()
    logs = cache / "nightly"
    logs.mkdir(parents=True, exist_ok=True)
    targets = [word for word in words if word != "--table"]
    with ExitStack() as owned:
        lock = -1 if "--table" in words else owned.enter_context(alone(cache / "nightly.lock"))
        night = Night(
            cache / "nightly.json",
            lambda: commit_of(tree),
            lambda target: made(target, logs / f"{target}.log", lock),
        )
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # also where a script has them ignored
            signal.signal(number, _stop)
        try:
            passed = "--table" in words or night.run(targets)
        except TreeChanged as changed:
            print(changed, flush=True)
            passed = False
        finally:
            print(night.table(targets), f"what each has said: {logs}", sep="\n", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
