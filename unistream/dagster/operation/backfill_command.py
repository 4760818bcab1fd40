"""`unistream backfill` as a child process of a run.

    run ── starts ──► command ── steps on stderr ──► log of the run
                         └────── figures on stdout, as JSON, at the end

The command is a process of its own since it handles signals as a whole: each of its steps is in a journal
first. So it may be killed at any time, and the same command goes on. It ends with the run's process: a retry
finds the lock of the backfill free.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import msgspec

from unistream.base.config import is_secret
from unistream.base.config_file import variable_of
from unistream.base.errors import UNDECODABLE
from unistream.base.references import escaped
from unistream.client.machine.background import awaited, in_background

POLL_S: Final = 0.5
START_S: Final = 30.0  # of a process, before it is to be ended
KILL_S: Final = 10.0
BAD_INPUT: Final = 2
"""Exit code of a command that was refused: a retry does not help."""

_ERROR: Final = "error: "


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What the command prints at its end.

    Attributes:
        backfill: Its id.
        verdict: "replaced", or "refused" if nothing was, for a `reason`.
        table: Its address.
        from_ms, to_ms: The range, ms since 1970.
        fence_version, version: Of the table before and after; None: it was not that far.
        rows_removed, rows_added: Of the range.
        rows_outside: Results outside of the range, which were dropped.
        savepoint: With which the job was stopped.
        job: The job that goes on from there.
    """

    backfill: str
    verdict: str | None
    reason: str | None
    table: str
    from_ms: int
    to_ms: int
    fence_version: int | None
    version: int | None
    rows_removed: int
    rows_added: int
    rows_outside: int
    savepoint: str | None
    job: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillCommandResult:
    """A command that has ended. `lines`: the last ones of its stderr."""

    code: int
    output: bytes
    lines: tuple[str, ...]

    @property
    def figures(self) -> Figures | None:
        """None: it did not come to its end."""
        try:
            return msgspec.json.decode(self.output, type=Figures)
        except UNDECODABLE:
            return None

    @property
    def sentence(self) -> str:
        """Why it has failed."""
        if self.code < 0:
            with contextlib.suppress(ValueError):
                return f"the command was ended by {signal.Signals(-self.code).name}"
        errors = [line.removeprefix(_ERROR) for line in self.lines if line.startswith(_ERROR)]
        said = errors or [line.strip("│╭╮╰╯─ ") for line in self.lines if line.strip("│╭╮╰╯─ ")]
        return said[-1] if said else f"the command has ended with exit code {self.code}"

    @property
    def is_final(self) -> bool:
        """The same command again would end in the same way."""
        return self.code == BAD_INPUT or self.figures is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """The configuration of a command. `variables`: of its environment: other users cannot see them."""

    words: tuple[str, ...]
    variables: Mapping[str, str] = field(repr=False)


def options_for(config: Mapping[str, str]) -> CommandOptions:
    """The configuration as `-D`, but for secrets, which nobody can list among the words of a process.

    >>> options_for({"client.timeout": "9 s", "s3.secret-key": "hunter2"})
    CommandOptions(words=('-D', 'client.timeout=9 s'))
    """
    plain = {key: escaped(value) for key, value in config.items() if not is_secret(key)}
    return CommandOptions(
        words=tuple(word for key, value in plain.items() for word in ("-D", f"{key}={value}")),
        variables={variable_of(key): value for key, value in config.items() if is_secret(key)},
    )


def command_of(words: Sequence[str]) -> list[str]:
    """`unistream WORDS` in a process that ends with this one."""
    return [sys.executable, "-m", "unistream.host.child", str(os.getpid()), "unistream.cli", *words]


def environment_of(inherited: Mapping[str, str], path: Sequence[str]) -> dict[str, str]:
    """Modules are found where this process finds them: a code location may have folders of its own.

    >>> environment_of({"HOME": "/h", "PYTHONPATH": "/old"}, ["", "/code"])["PYTHONPATH"]
    '/code'
    """
    return {**inherited, "PYTHONPATH": os.pathsep.join(folder for folder in path if folder)}


def perform(
    words: Sequence[str],
    log: Callable[[str], None],
    *,
    end_s: float,
    check: Callable[[], object] = lambda: None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> BackfillCommandResult:
    """Runs the command to its end. `log` is given each line of its stderr at once, in this thread; `check` is
    called every `POLL_S` and raises what is to end the command. `variables`: of its environment.

    If one of them raises, or this thread is interrupted, the command is interrupted too and has `end_s` to
    end; then, or when that wait is interrupted, it is killed. What was raised is raised again.
    """
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    started: Future[subprocess.Popen[bytes]] = Future()
    # on a thread that lives as long as the command: the kernel ends the command with the thread that started
    # it, and no signal can come between the start and the note of it
    ended = in_background(lambda: _run(words, variables, started, lines.put), "backfill")
    try:
        _follow(ended, lines, log, check)
    except BaseException:
        _end(started, ended, end_s)
        with contextlib.suppress(Exception):  # as when the log itself has raised
            _forward(lines, log)
        raise
    return ended.result()


def _run(
    words: Sequence[str],
    variables: Mapping[str, str],
    started: Future[subprocess.Popen[bytes]],
    say: Callable[[str], None],
) -> BackfillCommandResult:
    kept: list[str] = []
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command_of(words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.PIPE,
                env=environment_of({**os.environ, **variables}, sys.path),
                start_new_session=True,  # Ctrl-C reaches the run alone, which ends the command in order
            )
        except BaseException as error:
            started.set_exception(error)
            raise
        started.set_result(process)
        assert process.stderr is not None
        with process.stderr as stderr:
            for raw in stderr:
                line = raw.decode(errors="replace").rstrip()
                if line:
                    kept = [*kept[-50:], line]
                    say(line)
        code = process.wait()
        output.seek(0)
        return BackfillCommandResult(code=code, output=output.read(), lines=tuple(kept))


def _follow(
    ended: Future[BackfillCommandResult],
    lines: queue.SimpleQueue[str],
    log: Callable[[str], None],
    check: Callable[[], object],
) -> None:
    while not ended.done():
        check()
        with contextlib.suppress(queue.Empty):
            log(lines.get(timeout=POLL_S))
    _forward(lines, log)


def _forward(lines: queue.SimpleQueue[str], log: Callable[[str], None]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            log(lines.get_nowait())


def _end(
    started: Future[subprocess.Popen[bytes]], ended: Future[BackfillCommandResult], end_s: float
) -> None:
    """SIGTERM, which the command handles as Ctrl-C: a parent may have it ignore that."""
    process = awaited(started, START_S, "the backfill's process to start")
    process.terminate()
    try:
        wait([ended], end_s)
    finally:  # too long, or a second interruption
        if not ended.done():
            process.kill()
            wait([ended], KILL_S)
