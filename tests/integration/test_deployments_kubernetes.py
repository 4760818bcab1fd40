"""The files for Kubernetes fit each other and the product: options, names, ports, commands, secrets. Where
`kubectl` is, both overlays are rendered; at night they are checked against Kubernetes' schemas, too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.eventually import WAIT_S
from tests.integration.test_wheel import call_uv

FOLDER: Final = Path(__file__).resolve().parents[2] / "deployments" / "kubernetes"
OVERLAYS: Final = ("claim", "s3")
VALIDATOR: Final = "kubernetes-validate==1.37.0"
PROGRAM: Final = [sys.executable, "-m", "unistream.cli.main"]
KUBECTL: Final = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")


def documents() -> list[dict[str, Any]]:
    files = ("masters.yaml", "workers.yaml", "network.yaml")
    texts = [(FOLDER / "base" / name).read_text("utf-8") for name in files]
    return [one for text in texts for one in yaml.safe_load_all(text)]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [one for one in documents() if one["kind"] == kind]


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for one in of_kind("StatefulSet") + of_kind("Deployment"):
        yield one["metadata"]["name"], one["spec"]["template"]["spec"]


@cache
def config() -> dict[str, Any]:
    return dict(yaml.safe_load((FOLDER / "base" / "config.yaml").read_text("utf-8")))


def rendered(overlay: str) -> str:
    done = subprocess.run(
        ["kubectl", "kustomize", str(FOLDER / "overlays" / overlay)],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_S,
    )
    return done.stdout


def test_what_masters_and_workers_are_given_is_known_here(tmp_path: Path) -> None:
    text = (FOLDER / "base" / "config.yaml").read_text("utf-8")
    (tmp_path / "config.yaml").write_text(text.replace("/run/secrets/unistream", str(tmp_path)))
    (tmp_path / "zookeeper-password").write_text("z")
    (tmp_path / "metadata-url").write_text("postgresql+psycopg://u:p@db/u")
    for name, pod in pods():
        [container] = pod["containers"]
        given = {one["name"]: one.get("value", "x") for one in container["env"]}
        env = {**os.environ, **given, "STORAGE": "s3://b/u", "ZOOKEEPER": "z:2181"}
        checked = subprocess.run(
            [*PROGRAM, "config", "check"],
            env={**env, "UNISTREAM_CONF_DIR": str(tmp_path), "UNISTREAM_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S,
        )
        assert checked.returncode == 0, (name, checked.stdout + checked.stderr)
        words = container["args"]
        usage = subprocess.run([*PROGRAM, *words[:2], "--help"], capture_output=True, text=True, check=True)
        assert [word for word in words if word.startswith("--") and word not in usage.stdout] == []


def test_ports_are_those_of_the_configuration() -> None:
    settings = config()
    wanted = {
        "rest": settings["rest"]["port"],
        "control": settings["jobmanager"]["rpc.port"],
        "data": settings["taskmanager"]["data.port"],
    }
    found: dict[str, int] = {}
    for _, pod in pods():
        found |= {port["name"]: port["containerPort"] for port in pod["containers"][0]["ports"]}
    assert found == wanted
    [service] = of_kind("Service")
    assert all(wanted[port["name"]] == port["port"] for port in service["spec"]["ports"])
    allowed = {
        port["port"]
        for one in of_kind("NetworkPolicy")
        for rule in one["spec"]["ingress"]
        for port in rule["ports"]
    }
    assert allowed == set(wanted)


def test_all_that_is_mounted_is_there_and_all_that_is_selected() -> None:
    labels = set()
    for one in of_kind("StatefulSet") + of_kind("Deployment"):
        own = one["spec"]["template"]["metadata"]["labels"]
        assert one["spec"]["selector"]["matchLabels"].items() <= own.items()
        labels |= set(own.values())
        pod = one["spec"]["template"]["spec"]
        claims = [claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", [])]
        volumes = {volume["name"] for volume in pod["volumes"]} | set(claims)
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == volumes
    for one in of_kind("PodDisruptionBudget"):
        assert set(one["spec"]["selector"]["matchLabels"].values()) <= labels


def test_pods_have_no_rights_and_workers_no_secret_of_masters() -> None:
    for name, pod in pods():
        [container] = pod["containers"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        if "worker" in name:
            [secrets] = [one["secret"] for one in pod["volumes"] if one["name"] == "secrets"]
            assert "cluster-secret" not in {item["key"] for item in secrets["items"]}
            assert not any("livenessProbe" in one for one in pod["containers"])


def test_scripts_make_the_secrets_that_pods_mount() -> None:
    scripts = "".join((FOLDER / name).read_text("utf-8") for name in ("secrets.sh", "tokens.sh"))
    made = set(re.findall(r"create secret generic ([\w-]+)", scripts))
    mounted = {one["secret"]["secretName"] for _, pod in pods() for one in pod["volumes"] if "secret" in one}
    assert made == mounted
    for path in FOLDER.rglob("*.yaml"):
        assert "kind: Secret" not in path.read_text("utf-8"), f"{path}: users make them"


@KUBECTL
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_is_whole(overlay: str) -> None:
    made = [one for one in yaml.safe_load_all(rendered(overlay)) if one]
    assert {one["metadata"]["namespace"] for one in made} == {"unistream"}
    maps = {one["metadata"]["name"] for one in made if one["kind"] == "ConfigMap"}
    for one in made:
        if one["kind"] in {"StatefulSet", "Deployment"}:
            [container] = one["spec"]["template"]["spec"]["containers"]
            assert container["envFrom"][0]["configMapRef"]["name"] in maps


@KUBECTL
def test_kubernetes_own_schemas_are_met(tmp_path: Path) -> None:
    call_uv("venv", "--quiet", "--python", sys.executable, str(tmp_path / "venv"))
    call_uv("pip", "install", "--quiet", "--python", str(tmp_path / "venv/bin/python"), VALIDATOR)
    for overlay in OVERLAYS:
        file = tmp_path / f"{overlay}.yaml"
        file.write_text(rendered(overlay), encoding="utf-8")
        done = subprocess.run(
            [str(tmp_path / "venv/bin/kubernetes-validate"), "--strict", str(file)],
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
