"""Folders of states: valid as storage paths, readable, and distinguished."""

from __future__ import annotations

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given

from unistream.model.state_files import NAME_CHARACTERS_MAX, escaped, state_folder
from unistream.storage.location import StoragePath


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        pytest.param("kafka_source-1.v2", "kafka_source-1.v2", id="plain names stay"),
        pytest.param("a/b", "a_x2Fb", id="a slash is no folder"),
        pytest.param("..", "_x2E_x2E", id="nor are two dots"),
        pytest.param(".hidden", "_x2Ehidden", id="nothing is hidden"),
        pytest.param("v1.", "v1_x2E", id="no dot at the end"),
        pytest.param("a b%c", "a_x20b_x25c", id="blanks and percent signs"),
        pytest.param("größe", "gr_xC3_xB6_xC3_x9Fe", id="letters of other alphabets"),
        pytest.param("a_x2Fb", "a_x5Fx2Fb", id="what looks escaped is escaped"),
    ],
)
def test_escaped(name: str, folder: str) -> None:
    assert escaped(name) == folder
    assert unescaped(folder) == name


def unescaped(folder: str) -> str:
    """The name again, where it was not cut."""
    return re.sub(
        r"(?:_x[0-9A-F]{2})+",
        lambda run: bytes.fromhex(run[0].replace("_x", "")).decode("utf-8", "surrogatepass"),
        folder,
    )


@given(st.text(min_size=1, max_size=512), st.text(min_size=1, max_size=40))
def test_every_name_is_a_path_and_comes_back(uid: str, state: str) -> None:
    path = state_folder(uid, state)
    assert StoragePath(path).text == path
    folder = escaped(uid)
    assert len(folder) <= NAME_CHARACTERS_MAX
    if len(folder) < NAME_CHARACTERS_MAX:
        assert unescaped(folder) == uid


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300))
def test_two_names_are_two_folders(one: str, other: str) -> None:
    assert (escaped(one) == escaped(other)) == (one == other)
