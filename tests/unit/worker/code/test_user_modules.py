"""Modules of the user's project: which travel with a pipeline, and how they are found where it runs."""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from unistream.base.errors import MissingCode
from unistream.base.ids import OperatorUid, VertexId
from unistream.model.chain import Chain, ChainNode, JobCode
from unistream.worker.code import artifact
from unistream.worker.code.shipped_modules import shipped
from unistream.worker.code.user_modules import own_modules
from unistream.worker.task import task_failure

Project = Callable[[Mapping[str, str]], None]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Writes files into a folder that can be imported from until `elsewhere`, and forgets their modules."""
    before = set(sys.modules)

    def write(files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = tmp_path / "project" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(str(tmp_path / "project"))
    yield write
    shipped.activate("", ())
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on this process is like a worker on another machine: it has none of the project's files."""

    def leave() -> None:
        for name, module in list(sys.modules.items()):
            if str(tmp_path) in f"{getattr(module, '__file__', '')} {list(getattr(module, '__path__', ()))}":
                del sys.modules[name]
        (tmp_path / "project").rename(tmp_path / "gone")
        monkeypatch.delitem(sys.path_importer_cache, str(tmp_path / "project"), raising=False)

    return leave


def code(operator: object) -> JobCode:
    node = ChainNode(uid=OperatorUid("u"), name="n", operator=operator)
    return JobCode(chains={VertexId("v"): Chain(nodes=(node,))})


def packed(operator: object) -> bytes:
    return artifact.pack(code(operator), with_modules=True)


def opened(content: bytes) -> object:
    return artifact.load(content, artifact.sha256(content)).chains[VertexId("v")].nodes[0].operator


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"mine.py": ""}, {"mine"}, id="a module"),
        pytest.param(
            {"mine.py": "import json, pyarrow, unistream"}, {"mine"}, id="nothing that is installed"
        ),
        pytest.param({"mine.py": "import helpers", "helpers.py": ""}, {"mine", "helpers"}, id="an import"),
        pytest.param(
            {"mine.py": "def f():\n    from helpers import g", "helpers.py": ""},
            {"mine", "helpers"},
            id="an import inside of a function",
        ),
        pytest.param(
            {"mine.py": "import a", "a.py": "import b", "b.py": "import mine"},
            {"mine", "a", "b"},
            id="imports of imports, in a circle",
        ),
        pytest.param(
            {"mine.py": "import p.q.r", "p/__init__.py": "", "p/q/__init__.py": "", "p/q/r.py": ""},
            {"mine", "p", "p.q", "p.q.r"},
            id="a module with the packages above it",
        ),
        pytest.param(
            {"mine.py": "from p import r", "p/__init__.py": "", "p/r.py": "", "p/unused.py": ""},
            {"mine", "p", "p.r"},
            id="a module that is imported from its package, without those next to it",
        ),
        pytest.param(
            {
                "mine.py": "import p.a",
                "p/__init__.py": "",
                "p/a.py": "from . import b\nfrom .q import c",
                "p/b.py": "",
                "p/q/__init__.py": "from ..d import X",
                "p/q/c.py": "",
                "p/d.py": "X = 1",
            },
            {"mine", "p", "p.a", "p.b", "p.q", "p.q.c", "p.d"},
            id="relative imports",
        ),
        pytest.param(
            {"mine.py": "import space.a", "space/a.py": ""},
            {"mine", "space.a"},
            id="a package without __init__",
        ),
        pytest.param(
            {
                "mine.py": "import installed, single, own",
                "installed/__init__.py": "",
                "single.py": "",
                "own.py": "",
                "some-1.0.dist-info/RECORD": "installed/__init__.py,,\nsingle.py,sha256=x,0\n",
            },
            {"mine", "own"},
            id="nothing that was installed into the same folder",
        ),
        pytest.param({"mine.py": "import nowhere.to, .found"}, {"mine"}, id="source that cannot be parsed"),
        pytest.param({"mine.py": "import nowhere.to_be_found"}, {"mine"}, id="an import that finds nothing"),
    ],
)
def test_what_travels(project: Project, files: Mapping[str, str], expected: set[str]) -> None:
    project(files)
    found = own_modules(["mine", "json", "pyarrow", "unistream.api", "nothing"], by_value=())
    assert {module.name for module in found} == expected
    assert not expected & sys.modules.keys(), "nothing is imported to find it"


def test_modules_in_a_zip_file_travel_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        archive.writestr("zipped/__init__.py", "")
        archive.writestr("zipped/mine.py", "import zipped.late\n")
        archive.writestr("zipped/late.py", "LATE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "code.zip"))
    found = {module.name: module.source for module in own_modules(["zipped.mine"], by_value=())}
    assert found.keys() == {"zipped", "zipped.mine", "zipped.late"}
    assert found["zipped.late"] == b"LATE = 1\n"


def test_what_lies_in_the_pickle_does_not_travel_but_what_it_imports_does(project: Project) -> None:
    project({"script.py": "def f():\n    import helpers", "helpers.py": ""})
    importlib.import_module("script")
    found = own_modules(["script"], by_value=["script"])
    assert [module.name for module in found] == ["helpers"]


def test_a_pipeline_runs_where_its_project_is_not(project: Project, elsewhere: Callable[[], None]) -> None:
    project(
        {
            "jobs/__init__.py": "",
            "jobs/flights.py": (
                "from .rules import Rule\n"
                "class Operator:\n"
                "    def __init__(self):\n        self.rule = Rule()\n"
                "    def run(self, x):\n"
                "        from jobs.late import add\n"
                "        return add(x), isinstance(self.rule, Rule), __name__\n"
            ),
            "jobs/rules.py": "class Rule:\n    pass\n",
            "jobs/late.py": "# -*- coding: latin-1 -*-\ndef add(x):\n    return x + 1\n",
        }
    )
    content = packed(importlib.import_module("jobs.flights").Operator())
    elsewhere()
    operator = opened(content)
    assert operator.run(1) == (2, True, "jobs.flights")  # type: ignore[attr-defined]
    assert opened(content).__class__ is operator.__class__, "a module is loaded once"


def test_an_error_shows_the_line_of_a_file_that_is_not_there(
    project: Project, elsewhere: Callable[[], None]
) -> None:
    project({"broken.py": "def fail(row):\n    return 1 / 0  # never mind\n"})
    content = packed(importlib.import_module("broken").fail)
    elsewhere()
    with pytest.raises(ZeroDivisionError) as caught:
        opened(content)(None)  # type: ignore[operator]
    assert "return 1 / 0  # never mind" in task_failure(caught.value).traceback


def test_what_was_submitted_runs_not_what_lies_here(project: Project, tmp_path: Path) -> None:
    project({"versioned.py": "def version():\n    return 'submitted'\n"})
    content = packed(importlib.import_module("versioned").version)
    del sys.modules["versioned"]
    (tmp_path / "project" / "versioned.py").write_text("def version():\n    return 'of the worker'\n")
    assert opened(content)() == "submitted"  # type: ignore[operator]


def test_jobs_with_different_versions_of_a_module_share_a_process(
    project: Project, elsewhere: Callable[[], None], tmp_path: Path
) -> None:
    text = "seen = []\ndef note(row):\n    seen.append(row)\n    return seen\n"
    project({"space/shared.py": text})
    first = packed(importlib.import_module("space.shared").note)
    del sys.modules["space.shared"]
    project({"space/shared.py": text.replace("return seen", "return len(seen)")})
    second = packed(importlib.import_module("space.shared").note)
    elsewhere()
    note = opened(first)
    assert note(1) == [1]  # type: ignore[operator]
    assert opened(second)(1) == 1  # type: ignore[operator]
    assert note(2) == [1, 2]  # type: ignore[operator]
    assert opened(first)(3) == [1, 2, 3], "a job that comes again finds its own modules"  # type: ignore[operator]
    assert "space" in sys.modules
    opened(artifact.pack(code(1)))
    assert not {"space", "space.shared"} & sys.modules.keys(), "a job without modules meets none of another"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        pytest.param(
            {"mine.py": "from helpers import f\ndef run():\n    return f()", "helpers.py": "def f(): pass"},
            None,
            "needs module 'mine', which this worker does not have; install it on the workers",
            id="no such module",
        ),
        pytest.param(
            {"mine.py": "def run():\n    pass"},
            {"mine.py": ""},
            "install the same version of it on the workers",
            id="no such name in it",
        ),
    ],
)
def test_what_a_worker_does_not_have_is_named_and_no_restart_is_tried(
    project: Project,
    elsewhere: Callable[[], None],
    before: Mapping[str, str],
    after: Mapping[str, str] | None,
    says: str,
) -> None:
    project(before)
    content = artifact.pack(code(importlib.import_module("mine").run))
    elsewhere()
    if after is not None:
        project(after)
        importlib.invalidate_caches()
    with pytest.raises(MissingCode, match=says) as caught:
        opened(content)
    failure = task_failure(caught.value)
    assert (failure.kind, failure.recoverable) == ("UserCodeError", False)
    assert "\n" not in failure.message
