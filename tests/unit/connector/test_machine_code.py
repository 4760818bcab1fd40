"""Machine code of loops: how they are called, and of which sources it is."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from unistream.connector.common import machine_code
from unistream.connector.common.machine_code import LOOPS, SOURCES, CompiledLoop, LoopCode, file_name, loops

OURS = "tests.unit.connector.loops_of_tests"
TOP = Path(machine_code.__file__).parents[2]


def test_arrays_of_both_kinds_and_numbers_are_handed_over() -> None:
    numbers, bytes_ = np.arange(6).reshape(2, 3), np.full((2, 2), 255, np.uint8)
    assert [loops(OURS).last(numbers, bytes_, row) for row in range(2)] == [257, 260]
    assert loops(OURS).unpacked(np.array([3, -5]), 2**40) == 3 - 5 * 2**40


def test_what_a_loop_reads_may_have_gaps_and_be_narrower() -> None:
    numbers = np.array([3, 0, -5, 0], np.int32)
    assert loops(OURS).unpacked(numbers[::2], 10) == -47
    assert loops(OURS).unpacked(np.frombuffer(b"\1\2", np.uint8), 10) == 21


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(np.zeros(2, np.float64), id="of another type"),
        pytest.param(np.zeros(2, np.uint64), id="whose values may not fit"),
        pytest.param(np.zeros((2, 2), np.int64), id="of another shape"),
    ],
)
def test_an_array_that_a_loop_cannot_read_is_refused(array: np.ndarray) -> None:
    with pytest.raises(TypeError):
        loops(OURS).unpacked(array, 1)


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(np.zeros(1, np.int32), id="of another type"),
        pytest.param(np.zeros(8, np.int64)[::2], id="with gaps"),
        pytest.param(np.frombuffer(bytes(8), np.int64), id="that is only read"),
    ],
)
def test_an_array_that_a_loop_cannot_write_to_is_refused(array: np.ndarray) -> None:
    with pytest.raises(TypeError):
        loops(OURS).below(array)


def test_a_loop_that_fails_says_so() -> None:
    with pytest.raises(AssertionError, match="the loop unpacked failed"):
        loops(OURS).unpacked(np.arange(3), 1)


def test_an_argument_that_is_missing_is_refused() -> None:
    with pytest.raises(ValueError, match="argument"):
        CompiledLoop("none", 1, LoopCode("none", ("i8", "i8")))(1)


def test_code_of_other_sources_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "loops_that_change.py"
    source.write_text("FACTOR = 2")
    before = file_name("loops_that_change", "x86-64")
    assert file_name("loops_that_change", "x86-64") == before
    source.write_text("FACTOR = 3")
    assert file_name("loops_that_change", "x86-64") != before
    assert file_name(LOOPS[0], "x86-64") != file_name(LOOPS[0], "x86-64-v3")


def test_all_that_loops_are_made_of_is_among_their_sources() -> None:
    """A constant of another module would stay in machine code after it has changed."""
    sources = {path for pattern in SOURCES for path in TOP.glob(pattern)}
    kernels = {TOP.parent.joinpath(*name.split(".")).with_suffix(".py") for name in LOOPS}
    assert kernels <= sources
    for path in sources:
        if not path.name.endswith("kernels.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("unistream."):
                used = TOP.parent.joinpath(*node.module.split(".")).with_suffix(".py")
                types_only = {alias.name for alias in node.names} <= {"Int64s", "UInt8s"}
                assert used in sources or types_only, f"{path.name} imports {node.module}"
