"""A savepoint whose operator the job does not have: refused, unless it is said, in any of three ways."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import unistream as us
from tests.modes import STREAMING
from unistream.base.errors import ConfigError
from unistream.cli.main import main

KEY = "execution.state-recovery.ignore-unclaimed-state"
STREAM = ("-D", "execution.runtime-mode=STREAMING")
PIPELINE = """
import unistream as us
def build(env):
    numbers = us.DatagenSource({"n": us.datagen.Sequential()}, rows=10)
    rows = env.from_source(numbers, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    rows.sink_to(us.BlackholeSink()).uid("out")
"""


@pytest.fixture
def savepoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of an operator "gone"; next to it the module `flow`, which has none of that uid."""
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "restored_flow.py").write_text(PIPELINE)
    rows = pa.table({"user": pa.array([1], pa.int64()), "value": pa.array([7], pa.int64())})
    count = us.ValueStateDescriptor("count", pa.int64())
    us.SavepointWriter().with_state("gone", count, rows, keys=["user"]).write(tmp_path / "a savepoint")
    return tmp_path / "a savepoint"


def pipeline(config: dict[str, bool] | None = None) -> us.Environment:
    import restored_flow

    env = us.Environment({**STREAMING, **(config or {})}, target="local")
    restored_flow.build(env)
    return env


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(lambda env, path: env().execute(savepoint=path), id="Environment.execute"),
        pytest.param(
            lambda env, path: env({KEY: False}).execute(savepoint=str(path)), id="the option, set to false"
        ),
    ],
)
def test_refused(savepoint: Path, run: Callable[..., object]) -> None:
    with pytest.raises(ConfigError, match="'gone'"):
        run(pipeline, savepoint)


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(
            lambda env, path: env().execute(savepoint=path, allow_non_restored_state=True),
            id="an argument of Environment.execute",
        ),
        pytest.param(lambda env, path: env({KEY: True}).execute(savepoint=path), id="an option"),
    ],
)
def test_dropped(savepoint: Path, run: Callable[..., us.JobResult]) -> None:
    assert run(pipeline, savepoint).state == "FINISHED"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param((), 2, id="refused"),
        pytest.param(("--allow-non-restored-state",), 0, id="a flag"),
        pytest.param(("-D", f"{KEY}=true"), 0, id="an option"),
    ],
)
def test_on_the_command_line(
    savepoint: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int
) -> None:
    flow = "restored_flow:build"
    planned = {0: 0, 2: 1}[code]
    assert main(["plan", flow, "--against", str(savepoint), *STREAM, *words]) == planned
    assert main(["run", flow, "-t", "local", "--restore-from", str(savepoint), *STREAM, *words]) == code
    reported = capsys.readouterr()
    assert ("'gone'" in reported.err) == (code == 2)
