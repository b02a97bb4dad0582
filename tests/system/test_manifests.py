"""deploy/kubernetes without a cluster: the programs of its pods, with their configuration, Secrets and probes, on this
machine. Only addresses and folders are replaced."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.prepare import ROOT
from tests.support.certificates import Authority
from tests.support.databases import FLAVOURS, template
from tests.support.eventually import PATIENCE_S, until
from tests.support.ports import free_port
from tests.system.harness.programs import WORMHOLECTL

pytestmark = pytest.mark.soak

FOLDER = ROOT / "deploy" / "kubernetes"


def of_kind(file: str, kind: str) -> dict[str, Any]:
    found = [one for one in yaml.safe_load_all((FOLDER / file).read_text()) if one["kind"] == kind]
    return dict(found[0])


def container(file: str, kind: str) -> dict[str, Any]:
    [found] = of_kind(file, kind)["spec"]["template"]["spec"]["containers"]
    return dict(found)


class Pod:
    """The folders and addresses of one pod. ``replaced``: by which those of the manifests are."""

    def __init__(self, folder: Path, replaced: dict[str, str]) -> None:
        self._folder = folder
        self._replaced = {mount: str(folder / mount.strip("/")) for mount in MOUNTS} | replaced
        for mount in MOUNTS:
            (folder / mount.strip("/")).mkdir(parents=True)
        [(name, text)] = of_kind("publisher.yaml", "ConfigMap")["data"].items()
        self.file("/etc/wormhole", name).write_text(self.here(text))

    def here(self, text: str) -> str:
        longest_first = sorted(map(re.escape, self._replaced), key=len, reverse=True)
        return re.sub("|".join(longest_first), lambda found: self._replaced[found[0]], text)

    def file(self, mount: str, name: str) -> Path:
        return self._folder / mount.strip("/") / name

    def secret(self, authority: Authority, name: str) -> None:
        """As cert-manager would fill it."""
        issued = authority.issue(name, hosts=False)
        for source, target in ((issued.cert, "tls.crt"), (issued.key, "tls.key"), (issued.ca, "ca.crt")):
            shutil.copy(source, self.file("/etc/wormhole-tls", target))


MOUNTS = ("/var/lib/wormhole", "/etc/wormhole", "/etc/wormhole-db", "/etc/wormhole-tls")


@pytest.mark.parametrize(("file", "name"), [("subscriber.yaml", "printer"), ("dialling.yaml", "remote")])
def test_a_row_gets_from_mariadb_to_the_printer(tmp_path: Path, file: str, name: str) -> None:
    authority = Authority(tmp_path / "authority")
    with FLAVOURS["mariadb"](template=template("mariadb")) as server:
        server.sql("CREATE DATABASE shop", "CREATE TABLE shop.users (id INT PRIMARY KEY AUTO_INCREMENT)")
        http, dialled, attach = (f"127.0.0.1:{free_port()}" for _ in range(3))
        replaced = {
            "mariadb:3306": f"{server.host}:{server.port}",
            "127.0.0.1:7481": http,
            "printer:7600": dialled,
            "0.0.0.0:7600": dialled,
            "0.0.0.0:7490": attach,
            "wormhole-shop-db1:7490": attach,
        }
        publisher, printer = Pod(tmp_path / "publisher", replaced), Pod(tmp_path / "printer", replaced)
        publisher.secret(authority, "wormhole-publisher")
        printer.secret(authority, name)
        publisher.file("/etc/wormhole-db", "password").write_text(server.password)
        serves, listens = container("publisher.yaml", "StatefulSet"), container(file, "Deployment")
        given = {one["name"]: printer.here(one["value"]) for one in listens["env"]}
        words = [sys.executable, "-c", WORMHOLECTL, *map(publisher.here, serves["args"])]
        with (
            subprocess.Popen(words, cwd=ROOT) as publishing,
            subprocess.Popen(
                [sys.executable, *listens["command"][1:]],
                cwd=ROOT,
                env=os.environ | given | {"PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                text=True,
            ) as printing,
        ):
            try:
                for probe in ("readinessProbe", "livenessProbe"):
                    command = [sys.executable, *map(publisher.here, serves[probe]["exec"]["command"][1:])]
                    until(lambda: subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0, probe)  # noqa: B023
                server.sql("INSERT INTO shop.users VALUES ()")
                assert printing.stdout is not None
                assert printing.stdout.readline() == "insert shop.users 1 {'id': 1}\n"
                printing.terminate()
                publishing.terminate()
                assert (printing.wait(PATIENCE_S), publishing.wait(PATIENCE_S)) == (0, 0)
            finally:
                printing.kill()
                publishing.kill()
