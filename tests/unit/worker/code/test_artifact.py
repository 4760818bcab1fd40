from __future__ import annotations

import threading
import types
from pathlib import Path

import pytest

from unistream.base.errors import ConfigError, ProtocolError, UserCodeError
from unistream.base.ids import OperatorUid, VertexId
from unistream.model.chain import Chain, ChainNode, JobCode
from unistream.worker.code import artifact


def _code(operator: object) -> JobCode:
    node = ChainNode(uid=OperatorUid("u"), name="n", operator=operator)
    return JobCode(chains={VertexId("v"): Chain(nodes=(node,))})


def _operator(code: JobCode) -> object:
    return code.chains[VertexId("v")].nodes[0].operator


def test_what_is_loaded_is_what_was_packed_and_shares_nothing() -> None:
    content = artifact.pack(_code([1, 2]))
    first = artifact.load(content, artifact.sha256(content))
    second = artifact.load(content, artifact.sha256(content))
    assert _operator(first) == [1, 2]
    assert _operator(first) is not _operator(second)


class _Canary:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


def test_content_of_another_name_is_not_even_opened(tmp_path: Path) -> None:
    content = artifact.pack(_code(_Canary(tmp_path / "opened")))
    with pytest.raises(ProtocolError, match="not opened"):
        artifact.load(content, artifact.sha256(content + b"x"))
    assert not (tmp_path / "opened").exists()


def test_what_cannot_be_sent_is_the_users_to_fix() -> None:
    with pytest.raises(ConfigError, match="cannot be sent to workers"):
        artifact.pack(_code(threading.Lock()))


def test_a_damaged_artifact_names_the_likely_cause() -> None:
    content = b"not a pickle"
    with pytest.raises(UserCodeError, match="installed on the workers"):
        artifact.load(content, artifact.sha256(content))


def test_a_module_that_workers_do_not_have_travels_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    module = types.ModuleType("only_on_the_client")
    exec("def double(x):\n    return 2 * x\n", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_on_the_client", module)
    content = artifact.pack(_code(module.double), by_value=[module])
    monkeypatch.delitem(sys.modules, "only_on_the_client")
    double = _operator(artifact.load(content, artifact.sha256(content)))
    assert callable(double)
    assert double(4) == 8
