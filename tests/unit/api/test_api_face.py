"""The public face: what users import, how it is listed, and that the guides use nothing else."""

from __future__ import annotations

import ast
import builtins
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import unistream as us
from tests.eventually import WAIT_S
from unistream.base.lazy_face import face_of

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PUBLIC = ("unistream", "unistream.testing", "unistream.dagster")
STUBBED = ("unistream", "unistream.testing")
IMPORT_S_MAX = 0.15


def blocks(page: Path) -> Iterator[str]:
    """Code of a page: whole blocks of Python."""
    yield from re.findall(
        r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


def imports(page: Path) -> Iterator[tuple[str, str | None]]:
    """(module, name) of each import, and of each use of `import unistream as us`."""
    for block in blocks(page):
        for node in ast.walk(ast.parse(block)):
            match node:
                case ast.Import(names=names):
                    yield from ((alias.name, None) for alias in names)
                case ast.ImportFrom(module=str(module), names=names):
                    yield from ((module, alias.name) for alias in names)
                case ast.Attribute(value=ast.Name(id="us"), attr=attribute):
                    yield "unistream", attribute
                case ast.Attribute(
                    value=ast.Attribute(value=ast.Name(id="us"), attr="testing"), attr=attribute
                ):
                    yield "unistream.testing", attribute


OURS = sorted(
    {
        (str(page.relative_to(ROOT)), module, name)
        for page in PAGES
        for module, name in imports(page)
        if module.split(".")[0] == "unistream"
    },
    key=str,
)


def test_the_documents_show_imports() -> None:
    assert {module for _, module, _ in OURS} == set(PUBLIC)


@pytest.mark.parametrize(("page", "module", "name"), OURS, ids=str)
def test_documents_use_the_public_face_alone(page: str, module: str, name: str | None) -> None:
    assert module in PUBLIC, f"{page} imports {module}"
    if name is not None:
        assert hasattr(importlib.import_module(module), name), f"{page}: {module} has no {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_in_the_text_of_a_page_exist(page: Path) -> None:
    """`us.Name`, in prose and tables too."""
    used = set(re.findall(r"`us\.(\w+)", page.read_text(encoding="utf-8")))
    assert {name for name in used if not hasattr(us, name)} == set()


@pytest.mark.parametrize("package", STUBBED)
def test_every_name_of_a_stub_is_what_its_home_has(package: str) -> None:
    face, module = face_of(package), importlib.import_module(package)
    for name, (home, its_name) in face.homes.items():
        found = getattr(module, name)
        assert found is getattr(importlib.import_module(home), its_name), name
    assert set(face.exported) <= {*face.homes, "__version__"}
    assert list(face.exported) == module.__all__
    assert set(dir(module)) == {*face.homes, *face.exported}


@pytest.mark.parametrize("package", STUBBED)
def test_a_stub_says_nothing_that_is_not_so_when_it_runs(package: str) -> None:
    """Besides imports and `__all__` it has the version alone, which the package has, too."""
    stub = Path(importlib.import_module(package).__file__ or "").with_suffix(".pyi")
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        match node:
            case ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                continue
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                continue
            case ast.AnnAssign(target=ast.Name(id="__version__"), value=None):
                assert isinstance(us.__version__, str)
            case _:
                pytest.fail(f"{stub.name}: {ast.unparse(node)}")


@pytest.mark.parametrize("package", STUBBED)
def test_names_come_from_the_faces_of_rooms(package: str) -> None:
    """As import-linter wants it of modules; it does not read stubs."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    rooms = [room.removesuffix("*") for c in contracts for room in c.get("protected_modules", ())]
    assert rooms
    inside = [home for home, _ in face_of(package).homes.values() if home.startswith(tuple(rooms))]
    assert inside == []


@pytest.mark.parametrize("package", PUBLIC)
def test_a_star_import_hides_no_builtin(package: str) -> None:
    names: dict[str, object] = {}
    exec(f"from {package} import *", names)
    hidden = {name for name in names if hasattr(builtins, name) and not name.startswith("__")}
    assert hidden == set()


def test_aggregates_with_the_names_of_builtins_are_there_by_their_full_name() -> None:
    assert [us.max("n"), us.min("n"), us.sum("n")]
    assert {"max", "min", "sum"} <= set(dir(us))
    assert {"max", "min", "sum"}.isdisjoint(us.__all__)


@pytest.mark.parametrize("package", STUBBED)
def test_an_unknown_name_is_named(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Nothing'"):
        importlib.import_module(package).Nothing  # noqa: B018


def test_importing_the_package_loads_nothing_heavy_and_takes_no_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = (
        "import sys, time; at = time.process_time(); import unistream; took = time.process_time() - at;"
        "print(took, *sorted(sys.modules))"
    )
    took: list[float] = []
    for _ in range(5):
        words = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=WAIT_S
        ).stdout.split()
        took.append(float(words[0]))
        assert {"pyarrow", "numpy", "msgspec", "unistream.base.errors"}.isdisjoint(words[1:])
    with capsys.disabled():
        print(f" import unistream: {min(took) * 1000:.0f} ms", end=" ")
    assert min(took) < IMPORT_S_MAX
