"""Memory that a process frees and asks for again; see docs/decision/memory-model.md."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

BLOCK_BYTES = 6 * 2**20
PAGES = BLOCK_BYTES // 4096
AGAIN = """
import resource
from unistream.base.allocator import choose_allocator

choose_allocator()
before = 0
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(b"x") * {size}
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
@pytest.mark.parametrize(
    ("environment", "kept"),
    [
        ({}, True),
        ({"MALLOC_MMAP_THRESHOLD_": "131072"}, False),
        ({"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"}, False),
        ({"MALLOC_TRIM_THRESHOLD_": "131072"}, False),
        ({"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"}, False),
    ],
    ids=str,
)
def test_a_block_that_was_freed_costs_no_page_faults_again(environment: dict[str, str], kept: bool) -> None:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MALLOC_") and name != "GLIBC_TUNABLES"
    }
    done = subprocess.run(
        [sys.executable, "-c", AGAIN.format(size=BLOCK_BYTES)],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (int(done.stdout) < PAGES / 10) is kept


BETWEEN = """
import re
from pathlib import Path
from unistream.base.allocator import choose_allocator, give_back_freed_memory

def held():
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

choose_allocator()
values = {n: bytes(8_000) for n in range(8_000)}
lives_on = [values[n] for n in range(0, len(values), 100)]
full = held()
values.clear()
freed = held()
give_back_freed_memory()
print(full - freed, full - held())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no malloc_trim")
def test_what_was_freed_between_what_lives_on_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BETWEEN], capture_output=True, text=True, timeout=60, check=True
    )
    by_itself_kb, given_back_kb = map(int, done.stdout.split())
    assert by_itself_kb < 8_000
    assert given_back_kb > 40_000
