"""Style that is not checked decays: sizes, forbidden words, docstrings and who may import what."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from tests.tidy.parsed import parsed

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "unistream"
PYTHON_FOLDERS = ("unistream", "tests", "benchmarks", "dagster_defs", "deployments", "migrations")
TEXT_SUFFIXES = {
    ".py", ".md", ".toml", ".yml", ".yaml", ".sh", ".xml", ".mako", ".json", ".txt", ".cfg", ".ini", ".css",
    ".html", ".ts", ".tsx", ".js",
}  # fmt: skip

FILE_LINES_WARN = 400
FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 50
INIT_LINES_MAX = (
    70  # of a shell that is given many ports: each argument on a line of its own, and no branches
)
UNDOCUMENTED_LINES_MAX = 10  # outside of api and port, a function this short is read faster than described

LONG_FUNCTIONS: dict[str, str] = {}
"""``file.py::function`` -> why it is better in one piece."""

OWNERS: dict[str, tuple[str, ...]] = {
    "sqlalchemy": ("metadata/", "connector/sql/"),
    "alembic": ("metadata/",),
    "kazoo": ("ha/",),
    "rocksdict": ("state/rocksdb/api.py",),
    "pyspark": ("host/",),
    "fastavro": ("connector/common/avro",),
    "google.protobuf": ("connector/kafka/format/protobuf",),
    "kafka": ("connector/kafka/broker", "connector/kafka/sink/send.py", "testing/devtools/kafka"),
    "deltalake": ("connector/delta",),
    "s3fs": ("base/s3_files.py",),
    "botocore": ("base/s3_files.py",),
    "pyiceberg": ("connector/iceberg",),
    "pyarrow.flight": ("net/",),
    "fastapi": ("rest/",),
    "uvicorn": ("rest/",),
    "dagster": ("dagster/",),
    "yaml": ("base/config_file/yaml_text.py",),
    "cloudpickle": ("base/code_pickle.py",),
    "pickle": ("worker/code/artifact.py",),
    "marshal": (),
    "shelve": (),
    "dill": (),
}
"""Library -> the only places below unistream/ that know it. Another place asks them."""


@cache
def python_files() -> tuple[Path, ...]:
    return tuple(sorted(path for folder in PYTHON_FOLDERS for path in (ROOT / folder).rglob("*.py")))


@cache
def product_files() -> tuple[Path, ...]:
    return tuple(path for path in python_files() if path.is_relative_to(PACKAGE))


def shown(path: Path, node: ast.AST | None = None) -> str:
    return f"{path.relative_to(ROOT)}" + (f":{node.lineno}" if node is not None else "")


Function = ast.FunctionDef | ast.AsyncFunctionDef


def lines_of(function: Function) -> int:
    """From `def` to its end, without the docstring."""
    end = function.end_lineno or function.lineno
    doc = function.body[0] if ast.get_docstring(function) is not None else None
    return end - function.lineno + 1 - ((doc.end_lineno or 0) - doc.lineno + 1 if doc else 0)


def lines_max_of(function: Function) -> int:
    return INIT_LINES_MAX if function.name == "__init__" else FUNCTION_LINES_MAX


def test_there_is_something_to_check() -> None:
    assert len(product_files()) > 50
    assert len(python_files()) > len(product_files())


def test_files_have_at_most_700_lines() -> None:
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    too_long = {shown(path): lines for path, lines in sizes.items() if lines > FILE_LINES_MAX}
    growing = {
        shown(path): lines
        for path, lines in sizes.items()
        if lines > FILE_LINES_WARN and path.is_relative_to(PACKAGE)
    }
    assert not too_long, f"split these: {too_long}; soon these: {growing}"


def test_functions_have_at_most_50_lines_and_constructors_70() -> None:
    long = {
        f"{shown(path)}::{function.name}": lines_of(function)
        for path in python_files()
        if not path.is_relative_to(ROOT / "tests") and path.parent.name != "versions"  # a migration is a list
        for function in ast.walk(parsed(path))
        if isinstance(function, Function) and lines_of(function) > lines_max_of(function)
    }
    excess = {name: lines for name, lines in long.items() if name not in LONG_FUNCTIONS}
    assert not excess, f"split these, or give a reason in LONG_FUNCTIONS: {excess}"
    assert set(LONG_FUNCTIONS) <= set(long), "these are short by now: take them off the list"


def text_files() -> Iterator[Path]:
    folders = [ROOT / name for name in (*PYTHON_FOLDERS, "docs", ".ci")]
    for path in [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "Makefile"]:
        if path.is_file():
            yield path
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and (path.suffix in TEXT_SUFFIXES or path.suffix == ""):
                yield path


def found(pattern: re.Pattern[str]) -> list[str]:
    hits = []
    for path in text_files():
        if path == Path(__file__).resolve() or "__pycache__" in path.parts:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if pattern.search(line):
                hits.append(f"{shown(path)}:{number}: {line.strip()[:120]}")
    return hits


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"\b(TODO|FIXME|XXX|HACK)\b", id="nothing is left to do later"),
        pytest.param(r"\braise NotImplementedError\b", id="nothing is a stub"),
        pytest.param(
            r"(?<![\w}>/.~$-])/(work/|root/[.\w]|home/[a-z]\w*/|Users/[A-Za-z]|private/var)",
            id="no path of one machine",
        ),
        pytest.param(r"\b\w+\.(internal|corp|lan|intranet)\b[:/]", id="no host of one network"),
        pytest.param(r"^(<<<<<<<|>>>>>>>) ", id="no merge conflict"),
    ],
)
def test_the_text_of_the_repository_has(pattern: str) -> None:
    assert found(re.compile(pattern)) == []


def test_locked_packages_come_from_the_public_index() -> None:
    hosts = set(re.findall(r"https?://([^/\"\s]+)", (ROOT / "uv.lock").read_text(encoding="utf-8")))
    assert hosts == {"pypi.org", "files.pythonhosted.org"}


# --- docstrings -----------------------------------------------------------------------------------


@cache
def protocol_methods() -> frozenset[str]:
    """What a Protocol describes, its implementations need not describe again."""
    return frozenset(
        member.name
        for path in product_files()
        for item in ast.walk(parsed(path))
        if isinstance(item, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in item.bases)
        for member in item.body
        if isinstance(member, Function)
    )


def undocumented(path: Path) -> Iterator[str]:
    if ast.get_docstring(parsed(path)) is None and path.name != "__init__.py":
        yield f"{shown(path)}: the module"
    strict = path.relative_to(PACKAGE).parts[0] == "api"
    for item in parsed(path).body:
        if isinstance(item, Function) and needs_docstring(item, strict=strict):
            yield f"{shown(path, item)}: {item.name}"
        if not isinstance(item, ast.ClassDef) or item.name.startswith("_"):
            continue
        methods = [member for member in item.body if isinstance(member, Function)]
        if methods and ast.get_docstring(item) is None:  # a record without methods is described by its fields
            yield f"{shown(path, item)}: {item.name}"
        for method in methods:
            described = method.name in protocol_methods() or "overload" in ast.dump(method)
            if not described and needs_docstring(method, strict=strict):
                yield f"{shown(path, method)}: {item.name}.{method.name}"


def needs_docstring(function: Function, *, strict: bool) -> bool:
    if function.name.startswith("_") or ast.get_docstring(function) is not None:
        return False
    return strict or lines_of(function) > UNDOCUMENTED_LINES_MAX


def test_public_names_have_docstrings() -> None:
    missing = [line for path in product_files() for line in undocumented(path)]
    assert missing == []


NO_SUBJECT: Final = frozenset({
    "Of", "As", "Those", "For", "In", "By", "From", "To", "On", "At", "With", "Before", "After", "Behind",
    "Until",
})  # fmt: skip
"""First words of a docstring that says only the rest of a sentence: of what, one has to read elsewhere."""


def descriptions(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Docstrings of modules, classes and functions, and the texts below constants and fields."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for before, item in pairwise([None, *body] if isinstance(body, list) else []):
            is_text = isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)
            if is_text and isinstance(item.value.value, str) and (before is None or is_assignment(before)):
                yield item, item.value.value


def is_assignment(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign | ast.AnnAssign)


def test_docstrings_have_a_subject_or_a_verb() -> None:
    elliptical = [
        f"{shown(path, item)}: {text.split(chr(10))[0]}"
        for path in product_files()
        for item, text in descriptions(parsed(path))
        if text.split()[:1] and text.split()[0].rstrip(",:") in NO_SUBJECT
    ]
    assert elliptical == [], 'write a sentence that is understood alone: "The artifacts that a job needs."'


# --- calls ----------------------------------------------------------------------------------------


def starred_literals(function: ast.AST) -> Iterator[ast.Call]:
    """Calls to which a tuple that was written down just before is handed with a star."""
    stored = Counter(node.id for node in ast.walk(function) if is_stored(node))
    tuples = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
        for target in node.targets
        if isinstance(target, ast.Name) and stored[target.id] == 1
    }
    for node in ast.walk(function):
        for argument in node.args if isinstance(node, ast.Call) else ():
            value = argument.value if isinstance(argument, ast.Starred) else None
            is_local = isinstance(value, ast.Name) and value.id in tuples and isinstance(function, Function)
            if isinstance(value, ast.Tuple | ast.List) or is_local:
                yield node


def is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def test_arguments_are_written_out() -> None:
    """A star before a tuple of literals saves lines, and hides which argument is which."""
    starred = {
        f"{shown(path, call)}: {ast.unparse(call)[:100]}"
        for path in product_files()
        for scope in ast.walk(parsed(path))
        if isinstance(scope, ast.Module | Function)
        for call in starred_literals(scope)
    }
    assert starred == set()


# --- imports --------------------------------------------------------------------------------------


@cache
def imported(path: Path) -> tuple[tuple[str, ast.AST], ...]:
    """What a file imports, looked for once: every library asks for all of them."""
    names: list[tuple[str, ast.AST]] = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names += [(alias.name, node) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names += [(f"{node.module}.{alias.name}", node) for alias in node.names]
    return tuple(names)


@pytest.mark.parametrize("library", OWNERS)
def test_libraries_are_imported_by_their_owner_only(library: str) -> None:
    strangers = [
        f"{shown(path, node)} imports {name}"
        for path in product_files()
        if not str(path.relative_to(PACKAGE)).startswith(OWNERS[library])
        for name, node in imported(path)
        if name == library or name.startswith(library + ".")
    ]
    assert strangers == [], f"only unistream/{OWNERS[library]} may import {library}"


def test_every_owner_exists_or_is_planned() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    assert {place.split("/")[0] for places in OWNERS.values() for place in places} <= folders


PARQUET_READERS = {
    "ParquetFile",
    "read_table",
    "read_schema",
    "ParquetFileFormat",
    "ParquetDataset",
    "dataset",
}


def test_readers_of_parquet_are_made_in_one_place() -> None:
    """Elsewhere they would have other settings, so that one file has two contents."""
    found = [
        shown(path, node)
        for path in product_files()
        if path.name != "parquet_files.py"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in PARQUET_READERS
        and ast.unparse(node.func.value) in ("pq", "ds", "pyarrow.parquet", "pyarrow.dataset")
    ]
    assert found == [], "use unistream.base.parquet_files"


def test_bytes_that_cannot_be_decoded_are_caught_whatever_is_wrong_with_them() -> None:
    """msgspec has an error of its own for most of it, others for text that is no UTF-8 and for nesting."""
    caught = re.compile(r"except .*\bmsgspec\.(MsgspecError|DecodeError)\b")
    found = [str(path) for path in product_files() if caught.search(path.read_text())]
    assert found == [], "catch UNDECODABLE of base.errors"
