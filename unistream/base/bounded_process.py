"""A question that is answered in a process of its own, which may take only so much and can be stopped.

this process                                       the other one (a module)
             `READY` on stdout ◄────────────────── imports what it needs
question as bytes on stdin ───────────────────────► limits itself, answers
            answer as bytes on stdout ◄──────────── ends
kills it after `seconds`, or if it says too much, and all that it has started

Who runs code of a user in it gives it `scrubbed` variables and a folder of its own. It has no open file of
this process but its pipes. Both belong to one user of the machine: that is against what leaks by mistake, and
no wall against who wants to read that user's files.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import site
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from unistream.base.errors import Transient
from unistream.base.secrets import SEALING_VARIABLE
from unistream.base.user_files import is_installed

ENVIRONMENT: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
"""Others reserve a gigabyte ahead, which counts as if it was used."""

READY: Final = b"\n"

_KEPT: Final = frozenset(
    {
        *("PATH", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "LD_LIBRARY_PATH", "VIRTUAL_ENV"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONDONTWRITEBYTECODE"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "JAVA_HOME", "SPARK_HOME"),
        *("NUMBA_CACHE_DIR", "UNISTREAM_LOOPS"),
    }
)
"""Variables that say where things are on this machine. Secrets are passed in all others."""

_OF_THE_LOADER: Final = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory")
"""What the dynamic linker says of a library that it has no memory for."""


@dataclass(frozen=True, slots=True)
class Said:
    """What came of it.

    Attributes:
        answer: None: it said more than it may.
        code: The exit code; negative: the signal that has ended it.
        stopped: Why it was stopped; "": it was not. `late`: it has taken too long.
    """

    answer: bytes | None
    code: int
    stopped: str
    late: bool


class BoundedProcess:
    """One question to `module`. `ask` is called once; `stop` by any thread, at any time.

    Args:
        module: What is run.
        seconds: How long it may take.
        answer_bytes: How much it may say.
        environment: Its variables; None: those of this process.
        folder: Its current one; None: that of this process.
    """

    def __init__(
        self,
        module: str,
        *,
        seconds: int,
        answer_bytes: int,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
    ) -> None:
        self._module = module
        self._environment = environment
        self._folder = folder
        self._seconds = seconds
        self._answer_bytes = answer_bytes
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = ""
        self._late = False

    @property
    def is_running(self) -> bool:
        """It has a process."""
        with self._lock:
            return self._process is not None and self._process.returncode is None

    def ask(self, question: Callable[[], bytes]) -> Said:
        """Waits for the answer. `question` is called when the process is ready.

        Raises:
            Transient: it was stopped before it began.
        """
        process = self._start()
        timer = threading.Timer(self._seconds, self._stop_late)
        timer.start()
        try:
            answer = self._exchange(process, question)
        finally:
            timer.cancel()
            self._end(process)
        return Said(answer, process.returncode, self._stopped, self._late)

    def stop(self, why: str = "nobody waits for it any more") -> None:
        """Kills its process; what `ask` returns says why."""
        self._stop(why, late=False)

    def _stop_late(self) -> None:
        self._stop(f"it takes more than {self._seconds} s", late=True)

    def _stop(self, why: str, *, late: bool) -> None:
        with self._lock:
            if not self._stopped:  # the first reason counts
                self._stopped, self._late = why, late
            if self._process is not None and self._process.returncode is None:
                _kill_all(self._process)

    def _start(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise Transient(f"it was stopped: {self._stopped}")
            self._process = subprocess.Popen(
                [sys.executable, "-m", "unistream.host.child", str(os.getpid()), self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._variables(),
                cwd=self._folder,
                start_new_session=True,
            )
            return self._process

    def _variables(self) -> dict[str, str]:
        made = {**(os.environ if self._environment is None else self._environment), **ENVIRONMENT}
        made.pop(SEALING_VARIABLE, None)
        return made

    def _exchange(self, process: subprocess.Popen[bytes], question: Callable[[], bytes]) -> bytes | None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.read(len(READY))
        asked = question()
        with suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(asked)
        said = process.stdout.read(self._answer_bytes + 1)
        return said if len(said) <= self._answer_bytes else None

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            _kill_all(process)
            process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kills a process that was not waited for, whose id is therefore nobody else's, and its group."""
    with suppress(ProcessLookupError, PermissionError):  # where none of them lives any more, by systems
        os.killpg(process.pid, signal.SIGKILL)


def scrubbed(environment: Mapping[str, str], folder: str) -> dict[str, str]:
    """The variables for code of a user: where Python and its modules are, and nothing else. What it writes
    without being asked goes to `folder`, and what it looks for at home is not there.

    >>> scrubbed({"PATH": "/bin", "UNISTREAM_SECRET": "s", "AWS_SECRET_ACCESS_KEY": "s"}, "/f")["PATH"]
    '/bin'
    >>> sorted(scrubbed({"UNISTREAM_TOKEN": "t", "LC_ALL": "C"}, "/f"))
    ['HOME', 'LC_ALL', 'PYTHONPATH', 'PYTHONUSERBASE', 'TMPDIR']
    """
    kept = {key: value for key, value in environment.items() if key in _KEPT or key.startswith("LC_")}
    ours = [] if is_installed(__file__) else [str(Path(__file__).parents[2])]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join([*ours, *filter(None, [kept.get("PYTHONPATH")])]),
        "PYTHONUSERBASE": site.getuserbase(),
        "HOME": folder,
        "TMPDIR": folder,
    }


def limit_self(*, memory_bytes: int, seconds: int, file_bytes: int = 0) -> None:
    """Limits the rest of this process, which writes no file that is larger; 0: none at all. Files and pipes
    that are open stay so."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    # The soft limit is SIGXCPU, which says why it ended; where both are equal it is SIGKILL, as of anybody.
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))


def memory_gave_out(error: BaseException | None) -> bool:
    """Whether `error`, or what it comes from, is the limit of memory. Python has a `MemoryError` only where
    Python itself allocates: a folder that is listed for an import, or a library that is mapped, fails as
    OSError or ImportError.

    >>> memory_gave_out(OSError(errno.ENOMEM, "Cannot allocate memory")), memory_gave_out(OSError("lost"))
    (True, False)
    >>> memory_gave_out(ImportError("libarrow.so: failed to map segment from shared object"))
    True
    """
    while error is not None:
        of_system = isinstance(error, OSError) and error.errno == errno.ENOMEM
        of_loader = isinstance(error, ImportError) and any(words in str(error) for words in _OF_THE_LOADER)
        if isinstance(error, MemoryError) or of_system or of_loader:
            return True
        error = error.__cause__ or error.__context__
    return False
