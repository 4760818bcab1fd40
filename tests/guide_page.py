"""A page of the guide as somebody types it who has nothing but the page: what stands there, and nothing else.

    ```python           a file, if its first line is a name (`# send.py`); else for one session of Python
    ```sh               commands, each of which succeeds; behind "# in a second terminal" one that goes on
    ```console          commands behind "$ ", each with all that it prints
    ```text             what was printed just before
    <!-- not typed: why -->   the block behind it is only shown

In what is printed, times, durations, sizes, ids, ports and processes are those of whoever types; "…" is any
text, and as a line of its own any lines. What looks at a job is typed again until it shows what the page
says, and so is a command that says "try again".
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import metadata
from pathlib import Path
from typing import Any, Final

import psutil
from packaging.requirements import Requirement

from tests.eventually import WAIT_S, eventually
from unistream.client.machine.home import HOME_VARIABLE

ROOT: Final = Path(__file__).resolve().parents[1]
GUIDE: Final = ROOT / "docs" / "guide"
BLOCK: Final = re.compile(
    r"(?:<!-- not typed: (?P<why>[^>]+) -->\n+)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
TYPED: Final = ("python", "sh", "console", "text")
TRY_AGAIN: Final = "; try again when it is RUNNING"
ELSEWHERE: Final = "# in a second terminal"
LOOKS: Final = (
    "python look.py",
    *(f"unistream {name}" for name in ("list", "info", "logs", "checkpoints", "exceptions")),
)
MEANWHILE: Final = (  # what is another one each time
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?( UTC|Z)?", "<time>"),
    (r"\b[0-9a-f]{4}…", "<id>"),
    (r"\b[0-9a-f]{12,}\b", "<id>"),
    (r"127\.0\.0\.1:\d{5}\b", "127.0.0.1:<port>"),
    (r"\b\d+(\.\d+)? ?(ms|s|min|h|d)\b", "<duration>"),
    (r"\b\d+(\.\d+)? ([kMG]?B|[kmg]?b)\b", "<size>"),
    (r"\bprocess \d+\b", "process <pid>"),
    (r"\s+", " "),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to type. `kind`: "file", "python", "command" or "terminal". `says`: what it
    prints, if the page has that."""

    kind: str
    text: str
    name: str = ""
    says: str | None = None


def steps_of(page: str) -> list[Step]:
    """What is to be typed, in order."""
    steps: list[Step] = []
    for block in BLOCK.finditer(page):
        kind, text = block["kind"], block["text"]
        if block["why"] or kind not in TYPED:
            continue
        match kind:
            case "python":
                named = re.match(r"# ([\w/]+\.py)\n", text)
                steps.append(Step("file", text, named[1]) if named else Step("python", text))
            case "sh" if text.startswith(ELSEWHERE):
                steps.append(Step("terminal", text.partition("\n")[2].strip()))
            case "sh":
                steps += [Step("command", line) for line in _commands(text)]
            case "console" if text.startswith(ELSEWHERE):
                line, _, says = text.partition("\n")[2].removeprefix("$ ").partition("\n")
                steps.append(Step("terminal", line, says=says))
            case "console":
                typed = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
                parts = [one.partition("\n") for one in typed]
                steps += [Step("command", line, says=says) for line, _, says in parts]
            case "text":
                last = steps[-1]
                steps[-1] = Step(last.kind, last.text, last.name, text)
    return steps


def _commands(text: str) -> list[str]:
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def is_said(page: str, printed: str) -> bool:
    """Whether `printed` is what the page says."""
    pattern = "\n".join(
        "(.*\n?)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) for line in _plain(page)
    )
    return re.fullmatch(pattern.replace("*?\n", "*?"), "\n".join(_plain(printed))) is not None


def _plain(text: str) -> list[str]:
    lines = [line.strip() for line in text.splitlines()]
    for what, stands_for in MEANWHILE:
        lines = [re.sub(what, stands_for, line) for line in lines]
    return [line for line in lines if line]


class Reader:
    """Types in `folder`, whose home is empty. What goes on in other terminals ends with `close`."""

    def __init__(self, folder: Path, session: str) -> None:
        self.folder = folder / "here"
        self._folder_of_shell = folder / "pwd"
        self._names: dict[str, Any] = {"__name__": session}
        self._terminals: list[subprocess.Popen[bytes]] = []
        self.printed = ""
        for name in ("here", "home", "stack"):
            (folder / name).mkdir()
        own = {"HOME": folder / "home", "UNISTREAM_STACK_DIR": folder / "stack"}
        kept = {
            name: value for name, value in os.environ.items() if name not in (HOME_VARIABLE, "DAGSTER_HOME")
        }
        tools = f"{Path(sys.executable).parent}:{kept['PATH']}"
        self.environment = {
            **kept,
            **{name: str(path) for name, path in own.items()},
            "PATH": tools,
            "COLUMNS": "160",
        }
        self.environment.setdefault(
            "UNISTREAM_CACHE", str(Path.home() / ".cache" / "unistream")
        )  # jars of Kafka

    def assert_as_said(self, steps: Sequence[Step]) -> dict[str, Any]:
        """All of them; the names that the session of Python knows then."""
        for step in steps:
            match step.kind:
                case "file":
                    (self.folder / step.name).write_text(step.text, encoding="utf-8")
                case "python":
                    self.printed = self._python(step.text)
                case "terminal":
                    self.printed = self._terminal(step)
                case _:
                    self._command(step)
            if step.says is not None:
                assert is_said(step.says, self.printed), f"{step.text}\n{self.printed}"
        return self._names

    def _python(self, text: str) -> str:
        printed = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(printed):
            exec(compile(text, "typed", "exec", dont_inherit=True), self._names)
        return printed.getvalue()

    def _command(self, step: Step) -> None:
        if step.text.startswith("pip install "):
            self._require_installed(step.text.partition("#")[0].split()[2:])
            return
        if step.says is not None and step.text.startswith(LOOKS):
            eventually(lambda: self._shows(step), f"{step.text} says {step.says!r}", WAIT_S, 1.0)
            return
        eventually(lambda: self._is_done(step), f"{step.text} is done", WAIT_S, 1.0)

    def _require_installed(self, words: list[str]) -> None:
        """What a page installs is here already, with these extras; of a project (-e) what it needs."""
        if words[0] == "-e":
            project = tomllib.loads((self.folder / "pyproject.toml").read_text())
            words = [*project["project"]["dependencies"], *project["dependency-groups"][words[-1]]]
        for wanted in (Requirement(word.strip('"')) for word in words):
            found = metadata(wanted.name)
            assert set(wanted.extras) <= set(found.get_all("Provides-Extra") or ()), wanted
            assert wanted.specifier.contains(found["Version"], prereleases=True), wanted

    def _is_done(self, step: Step) -> bool:
        """Not yet if it says, as to anybody, to try again."""
        code, self.printed = self.run(step.text)
        if code != 0 and TRY_AGAIN in self.printed:
            return False
        assert code == 0 or step.says, (step.text, self.printed)
        return True

    def _shows(self, step: Step) -> bool:
        _, self.printed = self.run(step.text)
        return is_said(step.says or "", self.printed)

    def run(self, line: str) -> tuple[int, str]:
        """The exit code of a command, and all that it prints."""
        where = self._folder_of_shell
        done = subprocess.run(  # a shell for each line, which goes on where the last one was
            ["bash", "-c", f"{line}\ncode=$?\npwd >{where}\nexit $code"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        self.folder = Path(where.read_text().strip())
        return done.returncode, done.stdout

    def _terminal(self, step: Step) -> str:
        """As much of what it prints as the page has, at least a line."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {step.text}"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._terminals.append(process)
        assert process.stdout is not None
        lines = [process.stdout.readline().decode() for _ in (step.says or "…").splitlines()]
        assert all(lines), f"{step.text} has ended: {lines}"
        return "".join(lines)

    def close(self, patience_s: float) -> list[str]:
        """Ctrl-C in the other terminals, the last one first; then the servers that the page has started.

        Args:
            patience_s: How long what is in the background may take to end by itself.

        Returns: what is left of that, which is killed.
        """
        for process in reversed(self._terminals):
            family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=WAIT_S)
            assert psutil.wait_procs(family, timeout=WAIT_S)[1] == [], "it leaves nobody behind"
        self.run("unistream stack down")
        _, left = psutil.wait_procs(processes_at(self.environment["HOME"]), patience_s)
        for process in left:
            process.kill()
        return [str(process) for process in left]


def processes_at(home: str) -> list[psutil.Process]:
    """Those that live and have it as their home, but for this one and what it has started itself."""
    ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            is_another = process.pid not in ours and process.status() != psutil.STATUS_ZOMBIE
            if is_another and process.environ().get("HOME") == home:
                found.append(process)
    return found


@contextlib.contextmanager
def reader(folder: Path, session: str = "__main__") -> Iterator[Reader]:
    """In an empty folder with an empty home, which are also those of this process. `session`: the module that
    the lines of Python are of."""
    found, before = Reader(folder, session), dict(os.environ)
    patience_s, left = 0.0, list[str]()
    try:
        os.environ.clear()
        os.environ.update(found.environment)
        yield found
        patience_s = WAIT_S  # all was typed, also what ends them
    finally:
        os.environ.clear()
        os.environ.update(before)
        left = found.close(patience_s)
    assert left == [], "what the page starts, it ends"
