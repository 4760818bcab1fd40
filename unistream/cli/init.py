"""``unistream init``: a project to begin with. Its files are in the folder ``project`` next to this one."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from unistream.base.errors import ConfigError

TEMPLATE: Final = Path(__file__).with_name("project")
NAME: Final = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
PLACES: Final = {
    "README.md.txt": "README.md",
    "pyproject.toml.txt": "pyproject.toml",
    "gitignore.txt": ".gitignore",
    "ci.yml.txt": ".github/workflows/ci.yml",
    "pipeline.py.txt": "{{module}}/pipeline.py",
    "definitions.py.txt": "{{module}}/definitions.py",
    "its_test.py.txt": "tests/test_pipeline.py",
}
"""Where each file of the template goes."""


def init(
    name: Annotated[
        str, typer.Argument(help="Of the project and its folder, such as shop-orders.", show_default=False)
    ],
) -> None:
    """Write a project to begin with: a pipeline, its test, Dagster definitions and CI."""
    folder, module = Path(name), module_of(name)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"the folder {name} is there already, and not empty: choose another name")
    files = files_of(name, {path.name: path.read_text(encoding="utf-8") for path in TEMPLATE.iterdir()})
    for place, text in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, encoding="utf-8")
    typer.echo(f"wrote {', '.join(sorted(files))} to {name}; next:")
    for line in (
        f"cd {name}",
        "pip install -e . --group dev",
        "pytest",
        f"unistream explain {module}.pipeline:build",
    ):
        typer.echo(f"  {line}")
    typer.echo(f"{name}/README.md says how it runs as a stream, and in Dagster")


def module_of(name: str) -> str:
    """The name of its package.

    Raises:
        ConfigError: there is such a module already, which would be imported in its place; or it is no name.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no name for a project: small letters, digits and dashes, as in shop-orders"
        )
    module = name.replace("-", "_")
    if module in sys.stdlib_module_names or importlib.util.find_spec(module) is not None:
        raise ConfigError(
            f"there is a module {module!r} already, which Python would import: choose another name"
        )
    return module


def files_of(name: str, template: dict[str, str]) -> dict[str, str]:
    """Text by place; of the package with an empty `__init__.py`."""
    module = module_of(name)

    def filled(text: str) -> str:
        return text.replace("{{module}}", module).replace("{{name}}", name)

    return {
        f"{module}/__init__.py": "",
        **{filled(place): filled(template[file]) for file, place in PLACES.items()},
    }
