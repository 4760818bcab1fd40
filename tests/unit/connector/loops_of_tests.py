"""Loops that are compiled for tests alone: what loops are written with, called from Python."""

from __future__ import annotations

from unistream.connector.common import compiled as loops
from unistream.connector.common.buffers import Int64s, UInt8s


@loops.compiled("u1[:] i8 >i8[:]")
def lanes(data: UInt8s, byte: int, out: Int64s) -> None:
    at = loops.address_of(data)
    out[0] = loops.lanes_equal(at, byte)
    out[1] = loops.lanes_below(at, byte)
    out[2] = loops.lanes_not_ascii(at)


@loops.compiled(">i8[:]")
def below(bits: Int64s) -> None:
    bits[0] = loops.below_first(bits[0])


@loops.compiled("u1[:] i8 >u1[:]")
def copied(data: UInt8s, size: int, out: UInt8s) -> None:
    loops.copy_exactly(loops.address_of(data), size, loops.address_of(out))


@loops.compiled("i8[:,:] u1[:,:] i8")
def last(numbers: Int64s, bytes_: UInt8s, row: int) -> int:
    return numbers[row, len(numbers[row]) - 1] + bytes_[row, 0]


@loops.compiled("i8[:] i8")
def unpacked(numbers: Int64s, factor: int) -> int:
    first, second = numbers
    return first + factor * second
