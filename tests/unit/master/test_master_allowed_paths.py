"""Which places a request may name: no way leads out of the cluster's folders but for an admin."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
from msgspec import structs

from tests.unit.master.conftest import graph, request
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.base.errors import ConfigError, Forbidden
from unistream.core.access import Identity
from unistream.model.access import Scope
from unistream.model.graph import Bootstrap
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
    except (ConfigError, Forbidden):
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


def ways_out(root: Path) -> list[str]:
    """Texts that lead out of a cluster's folder, or are no place at all."""
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
    return sorted(ways | more)


def test_two_hundred_ways_out_are_refused(root: Path) -> None:
    paths = AllowedPaths([str(root)], None)
    assert [way for way in ways_out(root) if may(paths, way)] == []
    assert [way for way in ways_out(root) if is_let(lambda way: paths.check(way, OPERATOR), way)] == []


def is_let(check: Callable[[str], None], way: str) -> bool:
    try:
        check(way)
    except (ConfigError, Forbidden):
        return False
    return True


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


JOB, CHECKPOINTS, SAVEPOINTS = (
    "0" * 31 + "a",
    "execution.checkpointing.dir",
    "execution.checkpointing.savepoint-dir",
)


def submitted(place: str, *, where: str) -> bytes:
    """The body of a submission that names it."""
    made = request(None if where != "graph" else graph(execution_checkpointing_dir=place))
    if where == "savepoint":
        made = structs.replace(made, savepoint=place)
    elif where == "bootstrap":
        bootstrap = Bootstrap(directory=place, watermarks={})
        made = structs.replace(made, graph=structs.replace(made.graph, bootstrap=bootstrap))
    elif where == "config":
        made = structs.replace(made, config={SAVEPOINTS: place})
    return msgspec.msgpack.encode(made)


def as_json(**body: Any) -> bytes:
    return msgspec.json.encode(body)


SUBMISSION = "POST /unistream/jobs"
DOORS: dict[str, tuple[str, Callable[[str], bytes]]] = {
    "savepoint": ("POST /jobs/{id_}/savepoints", lambda place: as_json(**{"target-directory": place})),
    "stop": ("POST /jobs/{id_}/stop", lambda place: as_json(targetDirectory=place)),
    "start again": (
        "POST /unistream/kept-jobs/{name}/start",
        lambda place: as_json(savepointPath=place, requestId="r"),
    ),
    "start with checkpoints": (
        "POST /unistream/kept-jobs/{name}/start",
        lambda place: as_json(savepointPath="s3://a/b", requestId="r", config={CHECKPOINTS: place}),
    ),
    "check": (
        "POST /unistream/kept-jobs/{name}/check",
        lambda place: as_json(config={SAVEPOINTS: place}),
    ),
    "plan from": (
        "POST /unistream/plans",
        lambda place: as_json(entryPoint="no.such_module:build", savepoint=place),
    ),
    "plan with checkpoints": (
        "POST /unistream/plans",
        lambda place: as_json(entryPoint="no.such_module:build", config={CHECKPOINTS: place}),
    ),
    "submit from": (SUBMISSION, partial(submitted, where="savepoint")),
    "submit with savepoints": (SUBMISSION, partial(submitted, where="config")),
    "submit with checkpoints": (SUBMISSION, partial(submitted, where="graph")),
    "submit a bootstrap": (SUBMISSION, partial(submitted, where="bootstrap")),
}
"""What takes a place from a request."""

NO_DOORS: dict[str, str] = {
    "POST /unistream/jobs/{id_}/dead-letters/replays table": "one that the job writes, looked up by its URI"
}
PLACES = re.compile(r"target|path|dir|folder|file|savepoint|config|table|url|uri")


def test_every_field_that_may_be_a_place_is_a_door() -> None:
    known = {key for key, _ in DOORS.values()}
    found = {
        f"{key} {field.encode_name}"
        for key, operation in OPERATIONS.items()
        if isinstance(operation.body, type) and issubclass(operation.body, msgspec.Struct)
        for field in msgspec.structs.fields(operation.body)
        if PLACES.search(field.encode_name.lower()) and key not in known
    }
    assert found == set(NO_DOORS)
    assert known <= set(OPERATIONS)


def asked(api: Api, token: str, door: str, place: str) -> httpx.Response:
    key, body = DOORS[door]
    method, _, template = key.partition(" ")
    form = "application/msgpack" if key == SUBMISSION else "application/json"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": form}
    path = re.sub(r"\{\w+\}", JOB, template)
    return api.http.request(method, path, content=body(place), headers=headers)


@pytest.mark.parametrize("door", DOORS)
def test_no_door_lets_a_way_out_through(api: Api, door: str, root: Path) -> None:
    token = api.access.issue("team", Scope.SUBMIT, None).text
    for way in ways_out(root):
        answer = asked(api, token, door, way)
        assert answer.status_code in (400, 403), (way, answer.text)
    assert "may name" in asked(api, token, door, "/etc").text
    assert api.cluster.dispatcher.jobs() == []


@pytest.mark.parametrize("door", DOORS)
def test_an_admin_goes_through_every_door_and_others_into_the_clusters_folders(
    api: Api, door: str, tmp_path: Path
) -> None:
    token = api.access.issue("team", Scope.SUBMIT, None).text
    elsewhere = asked(api, api.access.owner_token, door, str(tmp_path / "elsewhere"))
    inside = asked(api, token, door, str(api.cluster.root / "inside"))
    for answer in (elsewhere, inside):
        assert answer.status_code in (202, 400, 404)
        assert "may name" not in answer.text
