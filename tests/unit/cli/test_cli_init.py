"""The files of a new project. That they run is shown by the page on installation, which is typed at night."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest
import yaml

from unistream.base.errors import ConfigError
from unistream.cli.init import PLACES, TEMPLATE, module_of
from unistream.cli.main import main


@pytest.mark.parametrize(
    ("name", "then"),
    [
        pytest.param("shop-orders", "shop_orders", id="a name of two words"),
        pytest.param("orders2", "orders2", id="a name of one word"),
    ],
)
def test_the_package_of_a_project(name: str, then: str) -> None:
    assert module_of(name) == then


@pytest.mark.parametrize(
    ("name", "why"),
    [
        pytest.param("Orders", "'Orders' is no name for a project", id="a capital letter"),
        pytest.param("../orders", "is no name for a project", id="a path"),
        pytest.param("2-orders", "is no name for a project", id="a digit first"),
        pytest.param("numbers", "there is a module 'numbers' already", id="a module of Python"),
        pytest.param("pyarrow", "there is a module 'pyarrow' already", id="a package that is installed"),
    ],
)
def test_a_name_that_could_not_be_imported_is_refused(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        module_of(name)


def test_every_file_is_written_once_and_is_what_it_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "shop-orders"]) == 0
    assert {path.name for path in TEMPLATE.iterdir()} == PLACES.keys()
    files = [path for path in Path("shop-orders").rglob("*") if path.is_file()]
    assert len(files) == len(PLACES) + 1
    for path in files:
        text = path.read_text()
        assert "{{" not in text, path
        match path.suffix:
            case ".py":
                ast.parse(text)
            case ".toml":
                assert tomllib.loads(text)["tool"]["dagster"]["module_name"] == "shop_orders.definitions"
            case ".yml":
                assert "checks" in yaml.safe_load(text)["jobs"]
    assert main(["init", "shop-orders"]) == 2, "it is there already"
