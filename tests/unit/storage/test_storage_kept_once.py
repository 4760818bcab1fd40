"""The keys of a cluster where others may read: sealed, and made once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.support.authorities import NOW_MS
from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.base.secrets import Secret
from unistream.storage.cluster_secret import AUTHORITY, SECRET, cluster_authority, cluster_secret
from unistream.storage.kept_once import FOLDER, kept_once
from unistream.trust.seals import SealKey, is_sealed

KEY = SealKey(Secret("0123456789abcdef" * 4))
OTHER = SealKey(Secret("fedcba9876543210" * 4))


def test_all_get_what_the_first_has_made(tmp_path: Path) -> None:
    def make(number: int) -> bytes:
        return kept_once(str(tmp_path), "x", lambda: str(number).encode())

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(make, range(40)))) == 1


def test_local_files_are_for_their_owner(tmp_path: Path) -> None:
    cluster_secret(str(tmp_path))
    cluster_authority(str(tmp_path), cluster="c", now_ms=NOW_MS)
    files = sorted((tmp_path / FOLDER).iterdir())
    assert [file.name for file in files] == [AUTHORITY, SECRET]
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)


def test_what_is_sealed_is_read_with_its_key_alone(tmp_path: Path) -> None:
    made = cluster_authority(str(tmp_path), cluster="c", now_ms=NOW_MS, key=KEY)
    content = (tmp_path / FOLDER / AUTHORITY).read_bytes()
    assert is_sealed(content)
    assert b"CERTIFICATE" not in content
    again = cluster_authority(str(tmp_path), cluster="c", now_ms=NOW_MS, key=KEY)
    assert again.fingerprint == made.fingerprint
    with pytest.raises(ConfigError, match=r"is sealed: name the file.*security\.secret-file"):
        cluster_authority(str(tmp_path), cluster="c", now_ms=NOW_MS)
    with pytest.raises(CorruptSnapshot, match="sealed with another key"):
        cluster_authority(str(tmp_path), cluster="c", now_ms=NOW_MS, key=OTHER)
    assert (tmp_path / FOLDER / AUTHORITY).read_bytes() == content


def test_a_sealed_file_is_taken_in_its_own_place_alone(tmp_path: Path) -> None:
    """Who can write the store cannot make one key of a cluster the other."""
    secret = cluster_secret(str(tmp_path), key=KEY)
    assert len(secret) == 32
    (tmp_path / FOLDER / AUTHORITY).write_bytes((tmp_path / FOLDER / SECRET).read_bytes())
    with pytest.raises(CorruptSnapshot, match="was changed since"):
        cluster_authority(str(tmp_path), cluster="c", now_ms=NOW_MS, key=KEY)


@pytest.mark.parametrize("cut", [8, 20, 60])
def test_a_part_of_a_sealed_file_is_none(tmp_path: Path, cut: int) -> None:
    cluster_secret(str(tmp_path), key=KEY)
    file = tmp_path / FOLDER / SECRET
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(CorruptSnapshot):
        cluster_secret(str(tmp_path), key=KEY)


def test_keys_do_not_lie_open_where_others_read() -> None:
    with pytest.raises(ConfigError, match=r"which others may read: seal them.*UNISTREAM_SECRET"):
        cluster_authority("memory://cluster-open", cluster="c", now_ms=NOW_MS)
    fs = MemoryFileSystem()
    made = cluster_authority("memory://cluster-sealed", cluster="c", now_ms=NOW_MS, key=KEY, fs=fs)
    assert is_sealed(fs.cat_file(f"/cluster-sealed/{FOLDER}/{AUTHORITY}"))
    assert made.roots(NOW_MS)


def test_what_is_no_authority_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / AUTHORITY).write_bytes(b"{}")
    with pytest.raises(CorruptSnapshot, match="is no authority of a cluster"):
        cluster_authority(str(tmp_path), cluster="c", now_ms=NOW_MS)
    assert (tmp_path / FOLDER / AUTHORITY).read_bytes() == b"{}"


def test_a_password_is_no_key() -> None:
    with pytest.raises(ConfigError, match="32 characters or more"):
        SealKey(Secret("hunter2"))
