"""Whether a user is warned that a stream has no checkpoints, so that nothing it writes is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import unistream as us


@pytest.mark.parametrize(
    ("config", "target", "sink", "bounded", "is_warned"),
    [
        pytest.param({}, "local", "file", False, True, id="an endless stream"),
        pytest.param({}, "local", "file", True, False, id="an end is a commit"),
        pytest.param({}, "local", "print", False, False, id="a sink that shows rows at once"),
        pytest.param({}, "remote", "file", False, False, id="the cluster may have an interval"),
        pytest.param(
            {"execution.checkpointing.interval": "1 s"}, "local", "file", False, False, id="with checkpoints"
        ),
    ],
)
def test_a_stream_without_checkpoints(
    tmp_path: Path, *, config: dict[str, str], target: Any, sink: str, bounded: bool, is_warned: bool
) -> None:
    env = us.Environment(config, target=target)
    rows = us.DatagenSource({"n": us.datagen.Sequential()}, rows=3 if bounded else None, bounded=bounded)
    stream = env.from_source(rows, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    stream.sink_to(us.FileSink(str(tmp_path)) if sink == "file" else us.PrintSink()).uid("out")
    found = dict(env.advice(env.job_graph("job")[0])).get("checkpointing_is_off", "")
    assert ("sink 'out'" in found and "'numbers'" in found) is is_warned
