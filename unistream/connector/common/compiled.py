"""What loops over bytes are written with: the only place that knows numba.

A loop is a function that numba compiles, in a process of its own (`loop_compiler`), or when a wheel is built.
Readers of records know only its machine code (`machine_code`).

Loops that look at every byte take addresses, as in C: an array that is handed from function to function is
counted at each call, which was measured to cost four times as much as all the rest. The caller that takes the
address of an array keeps the array. `load8` and `store8` take eight bytes at a time, `lanes_equal` and others
`LANES` of them, and no notice of where the content ends: so arrays have `PADDING` bytes more than they have
content, see `spans.padded`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from unistream.connector.common.buffers import PADDING

F = TypeVar("F", bound=Callable[..., Any])


class Export(NamedTuple):
    """A loop that is called from Python. `arguments`: as they are written; `types`: what these mean."""

    loop: Any
    arguments: tuple[str, ...]
    types: tuple[Any, ...]


EXPORTS: Final[dict[str, dict[str, Export]]] = {}
"""The loops that are called from Python, by module and name."""


def compiled(arguments: str) -> Callable[[F], F]:
    """Decorates a loop that is called from Python, see `machine_code.loops`. It allocates nothing, and
    returns a number or nothing.

    Args:
        arguments: The type of each, separated by blanks: ``i8`` is a number, ``u1[:]`` and ``i8[:,:]`` are
            arrays of bytes and of 64-bit integers; ``>`` stands before those that the loop writes to.
    """

    def decorate(function: F) -> F:
        loop = inner(function)
        written = tuple(arguments.split())
        export = Export(loop, written, tuple(_TYPES[one.lstrip(">")] for one in written))
        EXPORTS.setdefault(function.__module__, {})[function.__name__] = export
        return loop

    return decorate


_TYPES: Final = {
    "i8": types.int64,
    "u1[:]": types.Array(types.uint8, 1, "C", aligned=False),
    "u1[:,:]": types.Array(types.uint8, 2, "C", aligned=False),
    "i8[:]": types.Array(types.int64, 1, "C", aligned=False),
    "i8[:,:]": types.Array(types.int64, 2, "C", aligned=False),
}
_BARE: Final = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}  # nothing is counted

inner: Callable[[F], F] = numba.njit(**_BARE)
"""Decorates what other loops call."""
inlined: Callable[[F], F] = numba.njit(**_BARE, forceinline=True)
"""Decorates what other loops call, too; its code is put where it is called."""
spliced: Callable[[F], F] = numba.njit(**_BARE, inline="always")
"""Decorates small functions that take arrays: they are merged into their callers before these are
compiled."""

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


@inlined
def copy_exactly(at: int, size: int, to: int) -> None:
    """Writes no byte more."""
    done = 0
    while size - done >= WORD:
        store8(to + done, load8(at + done))
        done += WORD
    while done < size:
        set_byte(to + done, byte_at(at + done))
        done += 1
