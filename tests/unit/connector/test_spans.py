"""Pieces of bytes: lines, copies, and what loops are written with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from unistream.connector.common import binary_array, line_spans, padded
from unistream.connector.common.compiled import LANES
from unistream.connector.common.machine_code import loops

OURS = "tests.unit.connector.loops_of_tests"

LINES = st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=400)


@given(LINES, st.booleans())
def test_lines_are_those_of_python_without_blank_ones(lines: list[bytes], closed: bool) -> None:
    content = b"\n".join(lines) + (b"\n" if closed else b"")
    data = padded(content)
    starts, lengths = line_spans(data, len(content))
    found = [bytes(data[start : start + length]) for start, length in zip(starts, lengths, strict=True)]
    assert found == [line for line in content.split(b"\n") if line.strip(b" \t\r")]


@given(st.lists(st.none() | st.binary(max_size=30), max_size=50))
def test_pieces_are_copied(pieces: list[bytes | None]) -> None:
    lengths = np.array([-1 if piece is None else len(piece) for piece in pieces], np.int64)
    starts = np.cumsum(np.maximum(lengths, 0)) - np.maximum(lengths, 0)
    found = binary_array(padded(*[piece or b"" for piece in pieces]), starts, lengths)
    found.validate(full=True)
    assert found.type == pa.large_binary()
    assert found.to_pylist() == pieces


def test_lines_shorter_than_expected() -> None:
    content = b"a\n" * 10_000
    starts, lengths = line_spans(padded(content), len(content))
    assert starts.tolist() == list(range(0, 20_000, 2))
    assert set(lengths.tolist()) == {1}


@given(st.binary(min_size=LANES, max_size=LANES), st.integers(0, 255))
def test_lanes_are_compared_byte_by_byte(content: bytes, byte: int) -> None:
    def bits(holds: Callable[[int], bool]) -> int:
        return sum(1 << place for place, one in enumerate(content) if holds(one))

    found = np.zeros(3, np.int64)
    loops(OURS).lanes(padded(content), byte, found)
    assert found.tolist() == [
        bits(lambda one: one == byte),
        bits(lambda one: one < byte),
        bits(lambda one: one >= 0x80),
    ]


@given(st.integers(0, 2**64 - 1))
def test_bits_below_the_first(bits: int) -> None:
    lowest = bits & -bits
    found = np.array([bits], np.uint64)
    loops(OURS).below(found.view(np.int64))
    assert found[0] == (lowest - 1 if bits else 2**64 - 1)


@given(st.binary(max_size=40))
def test_not_a_byte_more_is_copied(content: bytes) -> None:
    found = np.full(len(content) + 8, 7, np.uint8)
    loops(OURS).copied(padded(content), len(content), found)
    assert bytes(found) == content + bytes([7] * 8)


def test_what_is_behind_the_content_is_no_line() -> None:
    """A buffer that is used again has the end of what it held before."""
    data = padded(b"a\nbc\n\nd\n")
    starts, lengths = line_spans(data, 4)
    assert (starts.tolist(), lengths.tolist()) == ([0, 2], [1, 2])
