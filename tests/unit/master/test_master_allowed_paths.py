"""Which places a request may name: no way leads out of the cluster's folders but for an admin."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.base.errors import ConfigError, Forbidden
from unistream.core.access import Identity
from unistream.model.access import Scope
from unistream.rest.allowed_paths import AllowedPaths, RequestedPlace
from unistream.rest.openapi import OPERATIONS
from unistream.rest.requests import target

OPERATOR = Identity(token="a" * 12, name="ops", scope=Scope.OPERATE)
ADMIN = Identity(token="b" * 12, name="root", scope=Scope.ADMIN)
UPS = (
    "..",
    "../..",
    "../../..",
    "../../../etc",
    "./..",
    "sub/../..",
    "sub/../../..",
    "../cluster2",
    "....//..",
)
FORMS = ("{root}/{up}", "{root}/{up}/etc/passwd", "file://{root}/{up}", "file:{root}/{up}/x", "{root}//{up}")
SPELLINGS: tuple[Callable[[str], str], ...] = (str, quote, lambda text: text.replace("..", "%2e%2e"))


def may(paths: AllowedPaths, text: str, identity: Identity = OPERATOR) -> bool:
    """Whether the request passes both: the form of a directory, and whose it is."""
    try:
        paths.check(target(text), identity)
    except ConfigError:
        return False
    return True


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of a cluster, with a neighbour whose name begins like its own."""
    for name in ("cluster/sub", "cluster2", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "cluster" / "out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "into").symlink_to(tmp_path / "cluster")
    return tmp_path / "cluster"


def test_two_hundred_ways_out_are_refused(root: Path) -> None:
    paths = AllowedPaths([str(root)], None)
    ways = {
        spell(form.format(root=root, up=up)) for form, up, spell in itertools.product(FORMS, UPS, SPELLINGS)
    }
    assert len(ways) >= 100
    more = {
        *(f"{root}{tail}" for tail in ("2", "2/x", "\x00", "\x00/../..", "\\..\\..", "/sub\\..\\..", "%00")),
        *(f"{root}/out{tail}" for tail in ("", "/", "/x", "/./x", "//x")),
        *(f"{scheme}{path}" for scheme in ("", "file:", "file://", "FILE://") for path in SYSTEM),
        *(
            f"{scheme}://host/{name}"
            for scheme in ("http", "https", "ftp", "gopher", "ssh")
            for name in "abc"
        ),
        *("relative", "../relative", "~/x", "$HOME/x", "", " /etc", "file://localhost/etc", "file://../etc"),
        *("local:///etc", "jar:file:///etc!/x", "data:,x", "zip://x::/etc/a", "simplecache::file:///etc"),
    }
    assert len(ways | more) >= 200
    assert [way for way in ways | more if may(paths, way)] == []


SYSTEM = (
    *("/", "/etc", "/etc/passwd", "/boot", "/boot/grub/grub.cfg", "/proc/self/environ", "/dev/shm/x"),
    *("//etc", "///etc/passwd", "/./etc", "/usr/../etc", "/var/spool/cron", "/srv", "/opt/other/savepoints"),
)


@pytest.mark.parametrize(
    "text",
    ["{root}", "{root}/", "{root}/sub", "{root}/new/deep", "file://{root}/x", "{up}/into/x", "{root}//x"],
)
def test_what_is_in_the_folder_may_be_named(root: Path, text: str) -> None:
    assert may(AllowedPaths([str(root)], None), text.format(root=root, up=root.parent))


@pytest.mark.parametrize(
    ("allowed", "text", "wanted"),
    [
        pytest.param(None, "s3://any/where", True, id="unset: any store"),
        pytest.param(None, "hdfs://host/where", True, id="unset: any store of Hadoop's"),
        pytest.param(("/data",), "s3://any/where", False, id="set: no store"),
        pytest.param(("/data",), "/data/x", True, id="a folder"),
        pytest.param(("/data",), "/database", False, id="a name that begins like it"),
        pytest.param(("s3://lake/savepoints",), "s3://lake/savepoints/a", True, id="below a prefix"),
        pytest.param(("s3://lake/savepoints",), "s3a://lake/savepoints/a", True, id="another name of S3"),
        pytest.param(("s3://lake/savepoints",), "s3://lake/savepoints2", False, id="begins like the prefix"),
        pytest.param(("s3://lake/savepoints",), "s3://lake/savepoints/./../x", False, id="out of the prefix"),
        pytest.param(("s3://lake/savepoints",), "gs://lake/savepoints/a", False, id="another store"),
        pytest.param(("s3://lake",), "/lake/x", False, id="a folder called like a bucket"),
        pytest.param((), "s3://any/where", False, id="set to nothing"),
    ],
)
def test_what_the_configuration_allows(allowed: tuple[str, ...] | None, text: str, wanted: bool) -> None:
    assert may(AllowedPaths(["/clusters/one"], allowed), text) == wanted


def test_an_admin_may_name_any_place_and_nobody_has_to(root: Path) -> None:
    paths = AllowedPaths([str(root)], ())
    assert may(paths, "/etc/savepoints", ADMIN)
    paths.check(None, OPERATOR)
    with pytest.raises(Forbidden, match="'/etc/x' is not in a folder that token 'ops' may name"):
        paths.check("/etc/x", OPERATOR)


def test_a_place_is_what_the_cluster_would_open(root: Path) -> None:
    assert RequestedPlace.of(f"file://{root}/out/x") == RequestedPlace(
        "", str(root.parent / "elsewhere" / "x")
    )
    assert RequestedPlace.of("S3A://Lake/a/") == RequestedPlace("s3", "/Lake/a")


# --- over HTTP ------------------------------------------------------------------------------------


@pytest.fixture
def api(make_cluster: Callable[..., Any]) -> Iterator[Api]:
    made = Api(make_cluster(workers=ScriptedWorkers(ends=False)))
    yield made
    made.close()


BODIES: dict[str, dict[str, Any]] = {
    "POST /jobs/{id_}/savepoints": {"target-directory": "/etc"},
    "POST /jobs/{id_}/stop": {"targetDirectory": "/etc"},
    "POST /unistream/kept-jobs/{name}/start": {"savepointPath": "/etc", "requestId": "r"},
    "POST /unistream/kept-jobs/{name}/check": {"config": {"execution.checkpointing.dir": "/etc"}},
}


@pytest.mark.parametrize("key", BODIES)
def test_every_path_that_takes_a_place_checks_it(api: Api, key: str) -> None:
    operator = api.access.issue("ops", Scope.OPERATE, None).text
    method, _, template = key.partition(" ")
    path = re.sub(r"\{\w+\}", "0" * 31 + "a", template)
    as_operator = {"Authorization": f"Bearer {operator}"}
    refused = api.http.request(method, path, json=BODIES[key], headers=as_operator)
    assert (refused.status_code, "may name" in refused.text) == (403, True)
    by_owner = api.http.request(method, path, json=BODIES[key])
    assert by_owner.status_code in (400, 404)
    assert key in OPERATIONS
