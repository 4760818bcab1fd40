"""Loops over bytes as machine code: the only place that knows numba.

numba compiles a loop at its first call and caches the machine code next to the module (or below
``NUMBA_CACHE_DIR``). The loops release the interpreter lock. Importing numba takes most of a second, so
modules with loops are imported late, by the thread that reads.

Loops that look at every byte take addresses, as in C: an array that is handed from function to function is
counted at each call, which was measured to cost four times as much as all the rest. The caller that takes the
address of an array keeps the array. `load8` and `store8` take eight bytes at a time, `lanes_equal` and others
`LANES` of them, and no notice of where the content ends: so arrays have `PADDING` bytes more than they have
content, see `spans.padded`.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import CellType, FunctionType
from typing import Any, Final, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import event
from numba.extending import intrinsic

from unistream.base.compiling import PROCESS
from unistream.connector.common.buffers import PADDING

_log = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., Any])


def _fingerprint() -> str:
    """A digest of all modules that loops may be put together from."""
    found = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted(
        {*here.glob("*.py"), *here.parent.glob("*/*kernels.py"), *here.parent.glob("*/*_schema.py")}
    ):
        found.update(path.read_bytes())
    return found.hexdigest()


SOURCES: Final = _fingerprint()


def _stamped(function: Any) -> Any:
    """Copies the function with `SOURCES` in its closure, which numba compares. It also compares the age of
    the file of a function, but not of the files of those that it calls: after an upgrade their old machine
    code would stay in it."""
    code = function.__code__.replace(co_freevars=(*function.__code__.co_freevars, "SOURCES"))
    closure = (*(function.__closure__ or ()), CellType(SOURCES))
    found = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    return functools.update_wrapper(found, function)


def _jit(**options: bool) -> Callable[[F], F]:
    jit = numba.njit(cache=True, nogil=True, **options)
    return lambda function: jit(_stamped(function))


compiled = _jit()
"""Decorates a loop that is called from Python."""
inner = _jit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""Decorates what other loops call."""
inlined = _jit(no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)
"""Decorates what other loops call, too; its code is put where it is called."""

spliced: Callable[[F], F] = numba.njit(cache=True, nogil=True, inline="always")
"""Decorates small functions that take arrays: they are merged into their callers before these are
compiled."""

COMPILING_S: Final = 120.0
"""No process waits longer for the machine code of another."""


class _CompileListener(event.Listener):  # type: ignore[misc]  # numba says nothing of types
    """Says what numba compiles: it is notified only of loops whose machine code is in no cache."""

    def __init__(self) -> None:
        self._since = 0.0

    def on_start(self, event: Any) -> None:
        if PROCESS.begin():
            self._since = time.monotonic()
            _log.info(
                "event=compiling loop=%s: machine code for records is made, once on this machine; none are "
                "read meanwhile. `unistream connectors compile` does it beforehand",
                event.data["dispatcher"].py_func.__name__,
            )

    def on_end(self, event: Any) -> None:
        if PROCESS.end():
            _log.info("event=compiled seconds=%.1f", time.monotonic() - self._since)


event.register("numba:compile", _CompileListener())


@contextmanager
def one_compiles(loop: Any) -> Iterator[None]:
    """Wraps the first call of a loop in a process: one process of a machine compiles it, and the others take
    its machine code from the cache. Else the tasks of a first job, a process each, would all compile at once.
    After `COMPILING_S`, or with a cache that may only be read, a process goes on by itself."""
    with ExitStack() as held:
        with suppress(OSError):
            lock = held.enter_context(open(Path(loop.stats.cache_path) / "one_compiles.lock", "ab"))
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


WORD: Final = 8
LANES: Final = 32
"""Bytes that are compared at once; without instructions for so many LLVM takes several."""
assert max(WORD, LANES) <= PADDING, "loads would read behind the padding"

ONE: Final = np.uint64(1)
HIGH_BITS: Final = np.uint64(0x8080808080808080)
NOTHING: Final = np.uint64(0)
FIRST_BYTES: Final = np.array([(1 << (8 * n)) - 1 for n in range(WORD + 1)], np.uint64)
"""FIRST_BYTES[n] keeps the first n bytes of a word."""


@intrinsic  # type: ignore[untyped-decorator]
def address_of(typing: Any, array: Any) -> Any:
    """The address of an array's first element. The caller keeps the array for as long as the address is
    used."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.ptrtoint(made.data, ir.IntType(64))

    return types.int64(array), generate


@intrinsic  # type: ignore[untyped-decorator]
def byte_at(typing: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(builder, args[0], 8), align=1)

    return types.uint8(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def set_byte(typing: Any, at: Any, byte: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], _pointer(builder, args[0], 8), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint8), generate


@intrinsic  # type: ignore[untyped-decorator]
def load8(typing: Any, at: Any) -> Any:
    """Eight bytes as a number; the first one is the lowest."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(builder, args[0], 64), align=1)

    return types.uint64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def store8(typing: Any, at: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], _pointer(builder, args[0], 64), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def lanes_equal(typing: Any, at: Any, byte: Any) -> Any:
    """Which of `LANES` bytes equal `byte`: bit k is that of byte k."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wanted = _splat(builder, args[1])
        return _mask(builder, builder.icmp_unsigned("==", _lanes(builder, args[0]), wanted))

    return types.uint64(types.int64, types.uint8), generate


@intrinsic  # type: ignore[untyped-decorator]
def lanes_below(typing: Any, at: Any, byte: Any) -> Any:
    """Which of `LANES` bytes are less than `byte`, without a sign."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bound = _splat(builder, args[1])
        return _mask(builder, builder.icmp_unsigned("<", _lanes(builder, args[0]), bound))

    return types.uint64(types.int64, types.uint8), generate


@intrinsic  # type: ignore[untyped-decorator]
def lanes_not_ascii(typing: Any, at: Any) -> Any:
    """Which of `LANES` bytes have their high bit set."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        none = ir.Constant(_LANE_TYPE, [0] * LANES)
        return _mask(builder, builder.icmp_signed("<", _lanes(builder, args[0]), none))

    return types.uint64(types.int64), generate


_LANE_TYPE: Final = ir.VectorType(ir.IntType(8), LANES)


def _lanes(builder: Any, address: Any) -> Any:
    return builder.load(builder.inttoptr(address, _LANE_TYPE.as_pointer()), align=1)


def _splat(builder: Any, byte: Any) -> Any:
    one = builder.insert_element(ir.Constant(_LANE_TYPE, ir.Undefined), byte, ir.Constant(ir.IntType(32), 0))
    firsts = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(_LANE_TYPE, ir.Undefined), firsts)


def _mask(builder: Any, each: Any) -> Any:
    return builder.zext(builder.bitcast(each, ir.IntType(LANES)), ir.IntType(64))


@intrinsic  # type: ignore[untyped-decorator]
def first_bit(typing: Any, bits: Any) -> Any:
    """The number of the lowest bit that is set; one must be."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


@inlined
def keep(array: Any) -> None:
    """Does nothing: but an array that a loop has made itself lives only up to the last place that names
    it."""


@inlined
def number_at(table: int, index: int) -> int:
    """Reads a number of a table of 64-bit integers."""
    return np.int64(load8(table + WORD * index))


@inlined
def set_number(table: int, index: int, number: int) -> None:
    store8(table + WORD * index, np.uint64(number))


@inlined
def below_first(bits: np.uint64) -> np.uint64:
    """The bits below the lowest one that is set; all of them if none is."""
    return (bits & (~bits + ONE)) - ONE


@inlined
def same_bytes(at: int, other: int, size: int) -> bool:
    """Whether the bytes at both addresses are the same."""
    done = 0
    while size - done > WORD:
        if load8(at + done) != load8(other + done):
            return False
        done += WORD
    return ((load8(at + done) ^ load8(other + done)) & FIRST_BYTES[size - done]) == NOTHING


@inlined
def copy_bytes(at: int, size: int, to: int) -> None:
    """Writes up to seven bytes more."""
    done = 0
    while done < size:
        store8(to + done, load8(at + done))
        done += WORD
