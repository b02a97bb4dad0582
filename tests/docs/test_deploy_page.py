"""deploy/ and docs/deploy.md: units that systemd takes, files that fit their schemas, and programs that exist.

tests/system/test_container.py and test_manifests.py run them.
"""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec import PyCompose

from scripts.prepare import ROOT
from subscriber_sdk.options.subscriber_options import read_options
from tests.support.command_line import can_be_typed
from tests.support.eventually import PATIENCE_S
from wormhole.config import parse
from wormhole.model.units import parse_duration

DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs" / "deploy.md").read_text()
UNITS = sorted((DEPLOY / "systemd").iterdir())
MANIFESTS = sorted((DEPLOY / "kubernetes").iterdir())
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
COMPOSE = (DEPLOY / "compose" / "compose.yaml").read_text()
# What `systemd-analyze security` may report, times ten: below 5 is its "OK".
EXPOSURE = 25

# The newest version whose schemas every accepted release of the package has.
KUBERNETES = "1.35"

Json = dict[str, Any]


# -- systemd


def unit(path: Path) -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(path)
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_what_exists(path: Path) -> None:
    assert path.name in PAGE
    service = unit(path)["Service"]
    started = service["ExecStart"].removeprefix("/usr/bin/env ")
    assert started.startswith("wormholectl ")
    can_be_typed(started.replace("%i", "shop"))
    leaves = service["KillMode"] == "process"
    assert leaves == ("--leave-running" in started), "publishers that are left running must not be killed"


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        return  # not where nothing is run by systemd; the test above holds the rest
    for path in UNITS:
        shutil.copy(path, tmp_path / path.name.replace("@.", "@shop."))
    copies = sorted(map(str, tmp_path.iterdir()))
    verified = analyze("verify", "--man=no", *copies)
    assert [line for line in verified.stderr.splitlines() if "wormhole" in line] == []
    for copy in copies:
        judged = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", copy)
        assert judged.returncode == 0, judged.stdout


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=PATIENCE_S)


# -- containers


def instructions(text: str = CONTAINERFILE) -> list[tuple[str, str]]:
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line.strip())]


def test_the_image_runs_what_exists_and_asks_what_answers() -> None:
    found = dict(instructions())
    can_be_typed(" ".join([*json.loads(found["ENTRYPOINT"]), *json.loads(found["CMD"])]))
    [url] = re.findall(r"WORMHOLE_READY=(\S+)", CONTAINERFILE)
    assert url == f"http://{parse('version = 1', 'test').monitor.listen}/readyz"
    assert "WORMHOLE_READY" in found["HEALTHCHECK"]


def test_only_the_first_stage_has_a_compiler_and_no_stage_ends_as_root() -> None:
    stages = [stage for stage in re.split(r"^(?=FROM )", CONTAINERFILE, flags=re.MULTILINE) if "FROM" in stage]
    build, sdk, spark, last = map(instructions, stages[-4:])
    assert "gcc" in str(build)
    assert "gcc" not in str(sdk + spark + last)
    assert ("USER", "990:990") in sdk
    assert [rest for word, rest in spark if word == "USER"] == ["0:0", "990:990"]
    assert "USER" not in dict(last)


BACKEND = {
    "SPARK_HOME": "/opt/spark",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "4",
    "SPARK_EXECUTOR_MEMORY": "4096m",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_EXECUTOR_POD_NAME": "replay-exec-3",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078",
    "SPARK_JAVA_OPT_1": "-Dspark.app.name=two words",
    **{f"SPARK_JAVA_OPT_{number}": f"-Dx={number}" for number in range(2, 11)},
}
DRIVER = "--properties-file|/opt/spark/conf/spark.properties|local:///opt/wormhole/replay.py|--app"
"""What Spark gives the pods that it makes."""


@pytest.mark.parametrize(
    ("words", "starts"),
    [
        (
            ("driver", *DRIVER.split("|")),
            "/opt/spark/bin/spark-submit|--conf|spark.driver.bindAddress=10.0.0.7|--deploy-mode|client|" + DRIVER,
        ),
        (
            ("executor",),
            "JAVA/bin/java|-Dspark.driver.port=7078|-Dspark.app.name=two words|"
            + "|".join(f"-Dx={number}" for number in range(2, 11))
            + "|-Xms4096m|-Xmx4096m|-cp|/opt/spark/conf:/opt/spark/jars/*|"
            "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend|"
            "--driver-url|spark://CoarseGrainedScheduler@driver:7078|--executor-id|3|--cores|4|--app-id|spark-1|"
            "--hostname|10.0.0.9|--resourceProfileId|0|--podName|replay-exec-3",
        ),
        (("wormholectl", "--version"), "wormholectl|--version"),
    ],
)
def test_what_spark_asks_of_a_pod_is_started(tmp_path: Path, words: tuple[str, ...], starts: str) -> None:
    tini = tmp_path / "tini"
    tini.write_text('#!/bin/sh\nshift 2\nprintf "%s|" "$@"\n')
    tini.chmod(0o755)
    done = subprocess.run(
        [DEPLOY / "spark-entrypoint", *words],
        env=BACKEND | {"PATH": f"{tmp_path}:/usr/bin:/bin", "JAVA_HOME": "JAVA"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout == starts + "|", done.stderr


def test_an_executor_without_what_spark_gives_does_not_start() -> None:
    environment = {name: value for name, value in BACKEND.items() if name != "SPARK_DRIVER_URL"}
    words = [str(DEPLOY / "spark-entrypoint"), "executor"]
    given = environment | {"PATH": "/usr/bin:/bin", "JAVA_HOME": "JAVA"}
    done = subprocess.run(words, env=given, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode != 0
    assert "SPARK_DRIVER_URL" in done.stderr


def test_every_role_is_of_extras_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [default] = [rest.partition("=")[2] for word, rest in instructions() if word == "ARG"]
    rows = [line.split("|")[2] for line in PAGE.splitlines() if line.startswith("|")][2:]
    roles = [name for row in rows for name in re.findall(r"`([a-z0-9,]+)`", row)]
    assert default in roles
    assert {extra for role in roles for extra in role.split(",")} <= set(project["optional-dependencies"])


def test_the_build_gets_every_package() -> None:
    taken = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {package.removesuffix("*") for package in packages} <= taken
    assert all((ROOT / name).exists() for name in taken)


# -- Compose


def test_the_compose_file_fits_the_specification() -> None:
    PyCompose.from_yaml(COMPOSE).validate()


def test_the_services_fit_their_configuration() -> None:
    folder = DEPLOY / "compose"
    services: Json = yaml.safe_load(COMPOSE)["services"]
    config = parse((folder / "shop.toml").read_text(), "shop.toml")
    [log] = config.datasets["shop"].copies["main"].logs.values()
    assert f"@{next(iter(services))}:3306" in str(log.source)
    assert config.applications["printer"].subscribers == {"printer": f"{services['subscriber']['hostname']}:7600"}
    assert config.monitor.listen.endswith(services["monitor"]["ports"][0].rpartition(":")[2])
    can_be_typed(shlex.join(["wormholectl", *services["monitor"]["command"]]))
    assert parse_duration(services["monitor"]["stop_grace_period"]) > config.monitor.stop_timeout
    for service in services.values():
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (folder / source).exists(), volume
    dialler = read_options({"application": "remote"}, services["dialler"]["environment"])
    assert dialler.dial == (f"{services['monitor']['hostname']}:{config.publisher.attach_listen.rpartition(':')[2]}",)
    assert config.applications["remote"].connect == "publisher"
    for name in ("monitor", "subscriber", "dialler"):
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["read_only"]


# -- Kubernetes


RESOURCES: list[Json] = [found for path in MANIFESTS for found in yaml.safe_load_all(path.read_text())]
PODS = [found for found in RESOURCES if found["kind"] in {"StatefulSet", "Deployment"}]


def named(resource: Json) -> str:
    return f"{resource['kind']} {resource['metadata']['name']}"


def resource(name: str) -> Json:
    [found] = [found for found in RESOURCES if named(found) == name]
    return found


@pytest.mark.parametrize("found", RESOURCES, ids=named)
def test_a_manifest_fits_its_schema(found: Json) -> None:
    kubernetes_validate.validate(found, KUBERNETES, strict=True)


def configured(pod: Json) -> tuple[str, str]:
    """Where the pod has its configuration, and its text."""
    [volume] = [volume for volume in pod["volumes"] if "configMap" in volume]
    [mount] = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == volume["name"]]
    [(name, text)] = resource(f"ConfigMap {volume['configMap']['name']}")["data"].items()
    return f"{mount['mountPath']}/{name}", text


@pytest.mark.parametrize("found", PODS, ids=named)
def test_a_pod_has_the_least_privilege(found: Json) -> None:
    pod = found["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] == 990
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    least = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert container["securityContext"] == least
    volumes = [volume["name"] for volume in pod["volumes"]]
    volumes += [claim["metadata"]["name"] for claim in found["spec"].get("volumeClaimTemplates", ())]
    assert sorted(mount["name"] for mount in container["volumeMounts"]) == sorted(volumes)


@pytest.mark.parametrize("found", [found for found in PODS if "wormhole" in named(found)], ids=named)
def test_a_pod_runs_what_exists_with_time_to_stop(found: Json) -> None:
    pod = found["spec"]["template"]["spec"]
    [container] = pod["containers"]
    path, text = configured(pod)
    config = parse(text, path)
    can_be_typed(shlex.join(["wormholectl", *container["args"]]))
    assert path in container["args"]
    monitors = container["args"][0] == "monitor"
    listen = config.monitor.listen if monitors else config.publisher.http_listen
    for probe, address in (("readinessProbe", "readyz"), ("livenessProbe", "healthz")):
        assert f"'http://{listen}/{address}'" in container[probe]["exec"]["command"][-1]
    stop = config.monitor.stop_timeout if monitors else config.publisher.stop_timeout
    assert pod["terminationGracePeriodSeconds"] > stop
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert str(config.publisher.state_dir) in mounts
    for file in re.findall(r'"(/etc/[^"]+)"', text):
        assert file.rpartition("/")[0] in mounts, file


def test_the_subscriber_is_where_the_publisher_dials_it() -> None:
    pod, service = resource("Deployment printer")["spec"]["template"]["spec"], resource("Service printer")
    [container] = pod["containers"]
    path, text = configured(pod)
    environment = {one["name"]: one["value"] for one in container["env"]}
    assert environment.pop("WORMHOLE_COORDINATOR") == path
    address = environment["WORMHOLE_ADVERTISE"]
    assert parse(text, path).applications["printer"].subscribers == {"printer": address}
    assert address == f"{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    options = read_options({"application": "printer"}, environment, shared=True)
    assert pod["terminationGracePeriodSeconds"] > options.stop_timeout


def test_the_subscriber_that_dials_finds_the_publisher() -> None:
    pod, service = resource("Deployment remote")["spec"]["template"]["spec"], resource("Service wormhole-shop-db1")
    [container] = pod["containers"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    options = read_options({"application": "remote"}, environment)
    [port] = [one["port"] for one in service["spec"]["ports"]]
    assert options.dial == (f"{service['metadata']['name']}:{port}",)
    path, text = configured(resource("StatefulSet wormhole-shop-db1")["spec"]["template"]["spec"])
    config = parse(text, path)
    assert config.applications["remote"].connect == "publisher"
    assert config.publisher.attach_listen.endswith(f":{port}")
    assert pod["terminationGracePeriodSeconds"] > options.stop_timeout
