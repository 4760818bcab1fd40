"""What a process may use of its machine, by the files of control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unistream.base.machine import resident_bytes, usable_cores, usable_memory_bytes

AFFINE = len(os.sched_getaffinity(0))
PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
V1 = "6:cpu,cpuacct:/a/b\n5:memory:/a/b\n0::/\n"
CPU = "sys/fs/cgroup/cpu,cpuacct"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        pytest.param({}, AFFINE, id="no control group"),
        pytest.param(
            {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, AFFINE, id="no limit"
        ),
        pytest.param({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "100000 100000"}, 1, id="one"),
        pytest.param({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "20000 100000"}, 1, id="a part"),
        pytest.param(
            {"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "100000 100000"},
            1,
            id="of a group around",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/docker/3f", "sys/fs/cgroup/cpu.max": "100000 100000"},
            1,
            id="the path is the host's",
        ),
        pytest.param(
            {
                "proc/self/cgroup": V1,
                f"{CPU}/a/b/cpu.cfs_quota_us": "-1",
                f"{CPU}/a/b/cpu.cfs_period_us": "100000",
                f"{CPU}/a/cpu.cfs_quota_us": "50000",
                f"{CPU}/a/cpu.cfs_period_us": "100000",
            },
            1,
            id="version 1",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "100000 0"}, AFFINE, id="no period"
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/../..", "cpu.max": "100000 100000"}, AFFINE, id="above the root"
        ),
    ],
)
def test_cores(tmp_path: Path, files: dict[str, str], cores: int) -> None:
    assert usable_cores(machine(tmp_path, files)) == cores


@pytest.mark.parametrize(
    ("files", "size"),
    [
        pytest.param({}, PHYSICAL, id="no control group"),
        pytest.param(
            {"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "max"}, PHYSICAL, id="no limit"
        ),
        pytest.param({"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "4096\n"}, 4096, id="a limit"),
        pytest.param(
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "8192",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2**63 - 4096),
            },
            8192,
            id="version 1",
        ),
    ],
)
def test_memory(tmp_path: Path, files: dict[str, str], size: int) -> None:
    assert usable_memory_bytes(machine(tmp_path, files)) == size


@pytest.mark.parametrize(
    ("files", "size"),
    [
        ({}, None),
        ({"proc/self/statm": "9 2 1"}, 2 * os.sysconf("SC_PAGE_SIZE")),
        ({"proc/self/statm": ""}, None),
    ],
)
def test_resident(tmp_path: Path, files: dict[str, str], size: int | None) -> None:
    assert resident_bytes(machine(tmp_path, files)) == size


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root
