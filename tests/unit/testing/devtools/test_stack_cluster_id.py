from __future__ import annotations

from unistream.testing.devtools.servers import cluster_id


def test_a_cluster_id_never_looks_like_an_option() -> None:
    draws = iter([b"\xf8" + bytes(15), b"\xfb" + bytes(15), b"\x01" + bytes(15)])
    assert cluster_id(lambda _count: next(draws)) == "AQAAAAAAAAAAAAAAAAAAAA"
