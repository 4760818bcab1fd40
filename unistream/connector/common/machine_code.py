"""The machine code of loops over bytes: where it is kept, and how Python calls it. Knows nothing of numba.

    ``…_kernels.py`` ──numba, when a wheel is built──► unistream/_loops/NAME ──llvmlite──► functions
                     └─numba, in a process, the first time on a machine──► this folder, or the user's ┘

One file has the loops of one module, for one operating system and level of processors, and its name has a
digest of the sources: code of others is not found, and the age of a file does not matter. A wheel has the
files of the kind of machine that it was built on. On others, and in a checkout, a module is compiled at its
first use, which takes seconds: what reports on the process says so meanwhile (`compiling.PROCESS`), and
`unistream connectors compile` does it beforehand.

Processors: x86-64-v3, which has AVX2, as nearly all since 2015; x86-64, all others of that kind; any other
machine by its name. Code is made for a level and not for one processor, so machines may share a folder or an
image.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import importlib.util
import logging
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from unistream.base.compiling import PROCESS
from unistream.base.errors import ConfigError

_log = logging.getLogger(__name__)

LOOPS: Final = (
    "unistream.connector.common.span_kernels",
    "unistream.connector.common.json_kernels",
    "unistream.connector.common.json_text_kernels",
    "unistream.connector.common.json_map_kernels",
    "unistream.connector.common.avro_kernels",
    "unistream.connector.file.csv_kernels",
    "unistream.connector.kafka.record.kernels",
    "unistream.connector.kafka.record.write_kernels",
    "unistream.connector.kafka.format.header_kernels",
    "unistream.connector.kafka.format.protobuf_kernels",
)
"""The modules with loops that Python calls."""
SOURCES: Final = (
    *(
        "connector/common/" + name
        for name in ("*kernels.py", "json_codes.py", "buffers.py", "avro_schema.py")
    ),
    *("connector/common/" + name for name in ("compiled.py", "loop_compiler.py")),
    *(
        "connector/kafka/record/*kernels.py",
        "connector/kafka/format/*kernels.py",
        "connector/file/*kernels.py",
    ),
    "connector/kafka/format/protobuf_schema.py",
)
"""The files that machine code is made of."""
FOLDER_VARIABLE: Final = "UNISTREAM_LOOPS"
COMPILING_S: Final = 120.0
"""No process waits longer for the machine code of another."""
NUMBER: Final = "i8"
SUFFIX: Final = "loops1"  # the number of the form of the files
_PACKAGE: Final = Path(__file__).parents[2] / "_loops"
_V3: Final = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_DTYPES: Final[dict[str, np.dtype[Any]]] = {"u1": np.dtype(np.uint8), "i8": np.dtype(np.int64)}

Argument: TypeAlias = "np.ndarray[Any, Any] | int"


class LoopCode(msgspec.Struct, frozen=True):
    """A loop in a file. `symbol`: the name of its function; `arguments`: see `compiled.compiled`."""

    symbol: str
    arguments: tuple[str, ...]


class CodeFile(msgspec.Struct, frozen=True):
    """The loops of one module, by name, and their object code."""

    loops: dict[str, LoopCode]
    code: bytes


@functools.cache
def loops(module: str) -> SimpleNamespace:
    """The loops of a module as functions, by name. If their machine code is nowhere, one process of the
    machine compiles it, and the others wait.

    Raises:
        ConfigError: it cannot be compiled here.
    """
    with _file_of(module) as path:
        found = msgspec.msgpack.decode(path.read_bytes(), type=CodeFile)
    engine = _engine(found.code)
    return SimpleNamespace(
        **{
            name: CompiledLoop(name, engine.get_function_address(one.symbol), one)
            for name, one in found.loops.items()
        }
    )


class CompiledLoop:
    """A loop that is called with arrays and numbers; it returns a number, 0 if it has none to return.

    It is called as numba's functions call each other: where the result goes, where an error goes, and of each
    array two owners, its items, their size, its address, its shape and its strides.
    """

    __slots__ = ("_function", "_kinds", "_name")

    def __init__(self, name: str, address: int, code: LoopCode) -> None:
        self._name = name
        self._kinds = [_kind_of(one) for one in code.arguments]
        words = sum(1 if kind is None else 5 + 2 * kind.dimensions for kind in self._kinds)
        self._function = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * (2 + words))(address)

    def __call__(self, *given: Argument) -> int:
        """Raises TypeError: an array is not of the type that the loop is made for."""
        words: list[int] = []
        arrays = []  # until the loop has ended
        for one, kind in zip(given, self._kinds, strict=True):
            if kind is None:
                words.append(int(one))
                continue
            assert isinstance(one, np.ndarray)
            array = kind.taken(one)
            arrays.append(array)
            words += (0, 0, array.size, array.itemsize, array.ctypes.data, *array.shape, *array.strides)
        result, failure = ctypes.c_int64(0), ctypes.c_int64(0)
        if self._function(ctypes.addressof(result), ctypes.addressof(failure), *words):
            raise AssertionError(f"the loop {self._name} failed")
        return result.value


class _ArrayKind(NamedTuple):
    """What arrays a loop takes. `is_written`: it writes to them, and not only reads."""

    dtype: np.dtype[Any]
    dimensions: int
    is_written: bool

    def taken(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The array without gaps; a copy if it has some. Raises TypeError."""
        if array.ndim != self.dimensions:
            raise TypeError(f"an array of {array.ndim} dimensions, not {self.dimensions}")
        if not self.is_written:
            return array.astype(self.dtype, order="C", casting="safe", copy=False)
        if array.dtype != self.dtype or not (array.flags.c_contiguous and array.flags.writeable):
            raise TypeError(f"an array of {array.dtype} that cannot be written as {self.dtype} without gaps")
        return array


def _kind_of(argument: str) -> _ArrayKind | None:
    """None: it is a number."""
    if argument == NUMBER:
        return None
    plain = argument.lstrip(">")
    return _ArrayKind(_DTYPES[plain[:2]], plain.count(":"), plain != argument)


_ENGINES: Final[list[Any]] = []  # an engine that is collected takes its code with it


def _engine(code: bytes) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _ENGINES.append(engine)
    return engine


# --- files ----------------------------------------------------------------------------------------


def file_name(module: str, level: str) -> str:
    """The name of the file with the code of a module."""
    return f"{module.removeprefix('unistream.connector.')}-{_digest(module)}-{sys.platform}-{level}.{SUFFIX}"


@functools.cache
def host_level() -> str:
    """The level of this machine's processors."""
    machine = platform.machine()
    if machine not in ("x86_64", "AMD64"):
        return machine
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return "x86-64-v3" if all(features.get(one) for one in _V3) else "x86-64"


def levels() -> tuple[str, ...]:
    """The levels of machines like this one, the best first."""
    return ("x86-64-v3", "x86-64") if host_level().startswith("x86-64") else (host_level(),)


def _digest(module: str) -> str:
    found = hashlib.sha256(_own_digest())
    if module not in LOOPS:
        spec = importlib.util.find_spec(module)
        found.update(Path(spec.origin).read_bytes() if spec is not None and spec.origin else b"")
    return found.hexdigest()[:16]


@functools.cache
def _own_digest() -> bytes:
    found, top = hashlib.sha256(), Path(__file__).parents[2]
    for path in sorted({path for pattern in SOURCES for path in top.glob(pattern)}):
        found.update(path.read_bytes())
    return found.digest()


def folders() -> list[Path]:
    """Where files may be: one that the user names, next to the package, in the user's cache."""
    named = os.environ.get(FOLDER_VARIABLE)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return [
        *([Path(named)] if named else []),
        _PACKAGE,
        Path(cache) / "unistream" / "loops",
    ]


@contextmanager
def _file_of(module: str) -> Iterator[Path]:
    """Yields the file with the code of a module."""
    name = file_name(module, host_level())
    if (path := _kept(name)) is not None:
        yield path
        return
    with ExitStack() as held:
        folder = _folder_to_write()
        if folder is None:
            folder = Path(held.enter_context(TemporaryDirectory()))
        else:
            held.enter_context(one_compiles(folder))
        if (path := _kept(name)) is None:
            path = folder / name
            with _compiling(module.rpartition(".")[2]):
                compile_loops([module], folder)
            if folder == _PACKAGE:
                _remove_former(module)
        yield path


def _remove_former(module: str) -> None:
    """Removes the code of former sources, which the package has no more."""
    names = {file_name(module, level) for level in levels()}
    stem, _, rest = file_name(module, "").rpartition(f"-{_digest(module)}-")
    for path in _PACKAGE.glob(f"{stem}-*-{rest.partition('-')[0]}-*"):
        if path.name not in names:
            path.unlink(missing_ok=True)


def _kept(name: str) -> Path | None:
    return next((folder / name for folder in folders() if (folder / name).exists()), None)


def _folder_to_write() -> Path | None:
    """The first folder that can be written; None: there is none."""
    for folder in folders():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    return None


# --- compiling ------------------------------------------------------------------------------------


def compile_loops(modules: Sequence[str], folder: Path) -> None:
    """Compiles the loops of modules, for all levels of machines like this one, in a process of its own, in
    which numba takes the best of them for its machine.

    Raises:
        ConfigError: it fails.
    """
    compiler = f"{__package__}.loop_compiler"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "NUMBA_CPU_NAME": llvm_name(levels()[0]),
        "NUMBA_CPU_FEATURES": "",
    }
    done = subprocess.run(
        [sys.executable, "-m", compiler, ",".join(levels()), str(folder), *modules],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise ConfigError(f"what reads records cannot be compiled on this machine: {last}")


def llvm_name(level: str) -> str:
    """What LLVM calls the processors of a level."""
    return level if level.startswith("x86-64") else "generic"


def compile_missing(modules: Sequence[str] = LOOPS) -> list[str]:
    """Compiles the modules whose code is nowhere, and loads all of them; returns which were compiled."""
    missing = _missing(modules)
    folder = _folder_to_write() if missing else None
    if folder is not None:
        with one_compiles(folder):
            if missing := _missing(modules):
                with _compiling(f"{len(missing)} modules"):
                    compile_loops(missing, folder)
    for module in modules:
        loops(module)
    return missing


def _missing(modules: Sequence[str]) -> list[str]:
    return [module for module in modules if _kept(file_name(module, host_level())) is None]


@contextmanager
def _compiling(what: str) -> Iterator[None]:
    """Says that code is made, before and afterwards."""
    since = time.monotonic()
    PROCESS.begin()
    try:
        _log.info(
            "event=compiling loops=%s: machine code for records is made, once on this machine, for some "
            "seconds; none are read meanwhile. `unistream connectors compile` does it beforehand",
            what,
        )
        yield
    finally:
        PROCESS.end()
    _log.info("event=compiled seconds=%.1f", time.monotonic() - since)


@contextmanager
def one_compiles(folder: Path) -> Iterator[None]:
    """Lets one process of a machine compile, and the others wait until it has: else the tasks of a first job,
    a process each, would all compile at once. After `COMPILING_S` a process goes on by itself."""
    with ExitStack() as held:
        with suppress(OSError):
            lock = held.enter_context((folder / "one_compiles.lock").open("ab"))
            if not _is_locked(lock.fileno()):
                _await_other(lock.fileno())
        yield


def _await_other(descriptor: int) -> None:
    """Waits for another process that compiles, `COMPILING_S` at most."""
    give_up = time.monotonic() + COMPILING_S
    PROCESS.begin()
    try:
        while not _is_locked(descriptor) and time.monotonic() < give_up:
            time.sleep(0.05)
    finally:
        PROCESS.end()


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def compile_for_wheel(folder: Path) -> None:
    """Puts the code of all loops into a folder, for all levels of machines like this one: what the checkout
    has, as its tests have run it, or else compiled now."""
    missing = []
    for module in LOOPS:
        kept = [_PACKAGE / file_name(module, level) for level in levels()]
        if all(path.exists() for path in kept):
            for path in kept:
                shutil.copy(path, folder)
        else:
            missing.append(module)
    if missing:
        compile_loops(missing, folder)


if __name__ == "__main__":
    compile_for_wheel(Path(sys.argv[1]))
