"""A pipeline is planned in a process of its own, which harms nobody and knows no secret of the cluster."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.eventually import WAIT_S, eventually
from unistream.base.bounded_process import BoundedProcess, Said, scrubbed
from unistream.base.limits import MIB
from unistream.model.pipeline_plans import PipelinePlanned, PlanAnswer, PlanLimits, PlanQuestion, PlanRefused
from unistream.model.submission import SubmitRequest
from unistream.rest.plans import MODULE

PIPELINES = "tests.unit.planning.pipelines"
LIMITS = PlanLimits(seconds=int(WAIT_S))
SECRETS = {
    "UNISTREAM_SECRET": "canary-1" * 8,
    "UNISTREAM_TOKEN": "canary-2",
    "UNISTREAM_CONF_METADATA_URL": "canary-3",
    "AWS_SECRET_ACCESS_KEY": "canary-4",
}


@pytest.fixture
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as made:
        yield made


def said(folder: str, function: str, limits: PlanLimits = LIMITS, **more: Any) -> Said:
    fields = {"entry_point": f"{PIPELINES}:{function}", "folder": os.getcwd(), "limits": limits} | more
    process = BoundedProcess(
        MODULE,
        seconds=limits.seconds,
        answer_bytes=limits.answer_bytes,
        environment=scrubbed({**os.environ, **SECRETS}, folder),
        folder=folder,
    )
    return process.ask(lambda: msgspec.msgpack.encode(PlanQuestion(**fields)))


def planned(folder: str, function: str, **more: Any) -> PlanAnswer:
    found = said(folder, function, **more)
    assert found.answer, found
    return msgspec.msgpack.decode(found.answer, type=PlanAnswer)


def refused(folder: str, function: str, **more: Any) -> PlanRefused:
    answer = planned(folder, function, **more)
    assert isinstance(answer, PlanRefused), answer
    return answer


def test_a_pipeline_becomes_a_job_with_its_parameters_and_code(folder: str) -> None:
    given = {"parallelism.default": "2"}
    answer = planned(folder, "counts", parameters={"limit": 3, "name": "k"}, name="of mine", config=given)
    assert isinstance(answer, PipelinePlanned)
    submission = msgspec.msgpack.decode(answer.submission, type=SubmitRequest)
    assert (submission.graph.name, submission.given) == ("of mine", given)
    assert {vertex.parallelism for vertex in submission.graph.vertices} == {2}
    assert submission.artifact
    explained = msgspec.json.decode(answer.explained)
    assert (explained["name"], answer.states) == ("of mine", b"")
    assert "numbers" in str(explained["jobGraph"])


@pytest.mark.parametrize(
    ("more", "why", "frames"),
    [
        ({"entry_point": "no.such_module:f"}, f"there is no module 'no.such_module' in {os.getcwd()}", ""),
        ({"entry_point": f"{PIPELINES}:count"}, "has no 'count'; did you mean 'counts'?", ""),
        ({"entry_point": "os.path"}, "is not MODULE:FUNCTION", ""),
        ({"entry_point": f"{PIPELINES}:__name__"}, "is not a function but str", ""),
        ({"parameters": {"limits": 3}}, "unexpected keyword argument 'limits'", ""),
        ({"parameters": {"env": 3}}, "multiple values for argument 'env'", ""),
        ({"parameters": {"limit": "three"}}, "three", ""),
        ({"entry_point": f"{PIPELINES}:raises"}, "raises raised ValueError: no such lake", "_deeper()"),
        ({"entry_point": f"{PIPELINES}:exits"}, "raised SystemExit: 3", "sys.exit(3)"),
        ({"config": {"parallelism.default": "-1"}}, "parallelism", ""),
        ({"config": {"no.such.option": "1"}}, "no.such.option", ""),
        ({"savepoint": "/no/such/savepoint"}, "/no/such/savepoint", ""),
    ],
)
def test_what_is_wrong_is_one_sentence_with_the_frames_of_the_user(
    folder: str, more: dict[str, Any], why: str, frames: str
) -> None:
    answer = refused(folder, "counts", **more)
    assert why in answer.why
    assert frames in answer.frames
    assert "unistream/api/load.py" not in answer.frames


def test_it_knows_no_secret_and_has_no_file_of_the_cluster(folder: str) -> None:
    answer = refused(folder, "tells")
    assert "canary" not in answer.why
    assert f"'HOME': {folder!r}" in answer.why
    assert os.path.realpath(folder) in answer.why
    assert "UNISTREAM" not in answer.why.replace("UNISTREAM_LOOPS", "")
    open_files = answer.why.rpartition(" at ")[0].rpartition("[")[2]
    assert [file for file in open_files.strip(")]").split(", ") if "anon_inode" not in file and file] == []


def test_what_it_prints_is_no_answer_and_what_it_writes_is_in_its_folder(folder: str) -> None:
    assert isinstance(planned(folder, "prints_and_writes"), PipelinePlanned)
    assert {"left", "cache"} <= set(os.listdir(folder))


def test_what_it_has_started_ends_with_it(folder: str, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    assert isinstance(planned(folder, "leaves_a_child", parameters={"note": str(note)}), PipelinePlanned)
    child = int(note.read_text())

    def has_ended() -> bool:
        try:
            status = Path(f"/proc/{child}/stat").read_text()
        except OSError:
            return True
        return status.rpartition(")")[2].split()[0] == "Z"  # killed; who reaps it is the system's matter

    eventually(has_ended, "the process that it has started has ended", WAIT_S)


def test_what_never_ends_is_ended(folder: str) -> None:
    found = said(folder, "never_ends", PlanLimits(seconds=8))
    assert not found.answer
    assert found.late or found.code < 0


def test_what_ends_without_a_word_or_takes_too_much_memory_is_known(folder: str) -> None:
    assert (said(folder, "ends_at_once").answer, said(folder, "ends_at_once").code) == (b"", 4)
    limits = PlanLimits(seconds=int(WAIT_S), memory_bytes=1_024 * MIB)
    assert "1024 MiB of memory" in refused(folder, "takes_memory", limits=limits).why
