from __future__ import annotations

import json
import os
import sysconfig
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pyarrow as pa
import pytest

from unistream.base import ids
from unistream.base.ids import OperatorUid, VertexId
from unistream.base.user_files import is_installed, raised_at
from unistream.model.chain import Chain, ChainNode, JobCode
from unistream.state.common.pickled import pickler, unpickled
from unistream.worker.code import artifact

JOB = "/srv/ada/job.py"
LIBRARY = os.path.join("/opt", "venv", "lib", "site-packages", "tariff", "core.py")
OURS = os.path.join(os.path.dirname(os.path.dirname(ids.__file__)), "operator", "map.py")
BESIDE_OURS = os.path.join(os.path.dirname(os.path.dirname(ids.__file__)) + "_jobs", "job.py")
STANDARD = os.path.join(sysconfig.get_path("stdlib"), "json", "decoder.py")

RAISES = "def run():\n    raise KeyError('fare')\n"  # in its second line
CALLS = "def run():\n    called()\n"


def _place(*frames: str | tuple[str, dict[str, Any]]) -> str | None:
    """`raised_at` of a call through functions of these files, the last of which raises."""
    called: Callable[[], None] | None = None
    for frame in reversed(frames):
        file, its_globals = frame if isinstance(frame, tuple) else (frame, {})
        found: dict[str, Any] = {"__name__": "job", "called": called, **its_globals}
        exec(compile(CALLS if called else RAISES, file, "exec"), found)
        called = found["run"]
    assert called is not None
    try:
        called()
    except KeyError as error:
        trace = error.__traceback__
        assert trace is not None
        return raised_at(trace.tb_next)  # without this test
    return None


SCRIPT = {"__name__": "__main__", "__file__": JOB}


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        pytest.param([OURS, JOB], f"{JOB}:2", id="the line that raises"),
        pytest.param([OURS, JOB, LIBRARY], f"{JOB}:2", id="the call of a library"),
        pytest.param([OURS, JOB, STANDARD], f"{JOB}:2", id="the call of the standard library"),
        pytest.param([OURS, JOB, OURS], f"{JOB}:2", id="the call of us, by the user"),
        pytest.param([OURS, JOB, "pyarrow/error.pxi"], f"{JOB}:2", id="the call of a compiled library"),
        pytest.param([OURS, LIBRARY, "pyarrow/error.pxi"], f"{LIBRARY}:2", id="a compiled one under another"),
        pytest.param([OURS, "pyarrow/error.pxi"], None, id="a compiled library that we have called"),
        pytest.param([OURS, JOB, ("<string>", SCRIPT)], f"{JOB}:2", id="the call of generated code"),
        pytest.param([OURS, LIBRARY], f"{LIBRARY}:2", id="a library's function is the user's"),
        pytest.param([OURS, BESIDE_OURS], f"{BESIDE_OURS}:2", id="a folder whose name begins as ours does"),
        pytest.param([OURS, "/tmp/ipykernel_7/1.py"], "/tmp/ipykernel_7/1.py:2", id="a notebook's cell"),
        pytest.param([("<stdin>", {"__name__": "__main__"})], "<stdin>:2", id="typed into a shell"),
        pytest.param([OURS, ("<dynamic-code>", SCRIPT)], f"{JOB}:2", id="a script, pickled without its name"),
        pytest.param(
            [OURS, ("<dynamic-code>", {"__file__": LIBRARY}), ("<dynamic-code>", SCRIPT), STANDARD],
            f"{JOB}:2",
            id="called by a library, both pickled without their names",
        ),
        pytest.param(
            [OURS, ("<dynamic-code>", {"__name__": "__main__"})],
            "<dynamic-code>:2",
            id="of a shell, pickled without its name",
        ),
        pytest.param([OURS, OURS], None, id="our own error"),
        pytest.param([OURS, "<frozen importlib._bootstrap>"], None, id="Python's own import"),
    ],
)
def test_the_last_line_of_the_users_code_is_named(
    frames: list[str | tuple[str, dict[str, Any]]], place: str | None
) -> None:
    assert _place(*frames) == place


@pytest.mark.parametrize(
    ("path", "installed"),
    [
        (json.__file__, True),
        (msgspec.__file__, True),
        (LIBRARY, True),
        ("/usr/lib/python3/dist-packages/yaml/__init__.py", True),
        (JOB, False),
        (__file__, False),
    ],
)
def test_installed_is_what_the_user_did_not_write(path: str, installed: bool) -> None:
    assert is_installed(path) is installed


def _of_file(path: Path, source: str) -> Any:
    found: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    path.write_text(textwrap.dedent(source))
    exec(compile(path.read_text(), str(path), "exec"), found)
    return found["made"]


def _sent(function: Any) -> Any:
    """As a worker gets it."""
    node = ChainNode(uid=OperatorUid("u"), name="n", operator=function)
    content = artifact.pack(JobCode(chains={VertexId("v"): Chain(nodes=(node,))}))
    return artifact.load(content, artifact.sha256(content)).chains[VertexId("v")].nodes[0].operator


def _stored(value: Any) -> Any:
    """As a state gives it back."""
    return unpickled(pickler("made", pa.schema([]))(value))


def _reduced_without_file(made_by: Any, arguments: tuple[Any, ...], file: str) -> tuple[Any, ...]:
    assert arguments.count(file) <= 1
    return made_by, tuple("<dynamic-code>" if one == file else one for one in arguments)


@pytest.mark.parametrize("travelled", [_sent, _stored])
@pytest.mark.parametrize("as_version", ["of the environment", "3.1.3"])
@pytest.mark.parametrize(
    "source",
    [
        pytest.param("def made(row):\n    return 1 / row['n']\n", id="a function"),
        pytest.param("made = lambda row: 1 / row['n']\n", id="a lambda"),
        pytest.param("def made(row):\n    return [1 / v for v in row.values()]\n", id="a comprehension"),
        pytest.param(
            "class Made:\n    def __call__(self, row):\n        return 1 / row['n']\nmade = Made()\n",
            id="a method",
        ),
        pytest.param("def outer():\n    return lambda row: 1 / row['n']\nmade = outer()\n", id="a closure"),
    ],
)
def test_a_pickled_function_raises_in_its_own_file(
    source: str,
    as_version: str,
    travelled: Callable[[Any], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if as_version == "3.1.3":
        kind = type(_of_file.__code__)
        reduced = cloudpickle.Pickler.dispatch_table[kind]
        monkeypatch.setitem(
            cloudpickle.Pickler.dispatch_table,
            kind,
            lambda code: _reduced_without_file(*reduced(code), code.co_filename),
        )
    file = tmp_path / "job.py"
    again = travelled(_of_file(file, source))
    with pytest.raises(ZeroDivisionError) as raised:
        again({"n": 0})
    line = 1 + source[: source.index("1 /")].count("\n")
    assert raised.traceback[-1].frame.raw.f_code.co_filename == str(file)
    assert raised_at(raised.tb) == f"{file}:{line}"
