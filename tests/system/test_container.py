"""The images of deploy/Containerfile, built step by step, and deploy/compose with them: one row from a MariaDB to the
subscriber.

No daemon and no registry: buildah runs each step in a chroot, and the base image is a Debian made by debootstrap. A
chroot has the machine's network, so addresses of deploy/compose are replaced by some of loopback. Needs root and
`apt-get install buildah debootstrap`; several minutes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.debian import debian_mirror
from scripts.prepare import ROOT, registry_environment
from tests.support.databases import FLAVOURS, template
from tests.support.eventually import PATIENCE_S, until
from tests.support.marked import MARK, marked
from tests.support.ports import free_port

MISSING = [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]
pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(bool(MISSING) or os.geteuid() != 0, reason=f"needs root, buildah and debootstrap: {MISSING}"),
]

BASE = "docker.io/library/debian:bookworm-slim"
COMPOSE = ROOT / "deploy" / "compose"
BUNDLE = "/etc/builder.crt"  # certificates that this machine trusts, also those of a registry of its own


class Buildah:
    """Images and containers in ``folder``; they go with it."""

    def __init__(self, folder: Path) -> None:
        self._storage = ["--root", str(folder / "root"), "--runroot", str(folder / "run"), "--storage-driver", "vfs"]
        self._policy = folder / "policy.json"
        self._policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')

    def words(self, *words: str | Path) -> list[str]:
        return ["buildah", *self._storage, *map(str, words)]

    def __call__(self, *words: str | Path) -> str:
        """What it prints, of a command that has to succeed."""
        done = subprocess.run(self.words(*words), cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout.strip()

    def signed(self, verb: str, *words: str | Path) -> str:
        return self(verb, "--signature-policy", self._policy, *words)

    def build(self, image: str, *words: str) -> None:
        chroot = ("--isolation", "chroot", "--pull-never", "--layers", "--format", "docker")
        self.signed("bud", *chroot, "-f", "deploy/Containerfile", "-t", image, *words, ".")

    def runs(self, container: str, *command: str, **environment: str) -> list[str]:
        """The words that run ``command`` as the image's user."""
        given = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
        return self.words("run", "--isolation", "chroot", *given, container, "--", *command)


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    """With the images of both stages."""
    folder = tmp_path_factory.mktemp("buildah")
    found = Buildah(folder)
    base = folder / "debian"
    mirror = debian_mirror()
    assert mirror is not None
    keys = [f"--keyring={mirror.keyring}"] if mirror.keyring else []
    made = ["debootstrap", "--variant=minbase", *keys, "bookworm", str(base), mirror.address]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    registry = registry_environment()
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", base / BUNDLE.lstrip("/"))
    container = found("from", "scratch")
    found("copy", "-q", container, base, "/")
    variables = {"PIP_CERT": BUNDLE, "SSL_CERT_FILE": BUNDLE}
    if index := registry.get("UV_DEFAULT_INDEX"):
        variables |= {"PIP_INDEX_URL": index, "UV_DEFAULT_INDEX": index}
    for name, value in variables.items():
        found("config", "--env", f"{name}={value}", container)
    found.signed("commit", "-q", "--rm", container, BASE)
    shutil.rmtree(base)
    found.build("wormhole")
    found.build("wormhole-sdk", "--target", "sdk", "--build-arg", "EXTRAS=")
    yield found
    found("rm", "--all")
    shutil.rmtree(folder)


@pytest.mark.parametrize(("image", "command"), [("wormhole", True), ("wormhole-sdk", False)])
def test_an_image_has_what_its_role_needs_and_no_more(buildah: Buildah, image: str, command: bool) -> None:
    container = buildah.signed("from", "--pull-never", image)
    script = """
id -u
python -c 'import subscriber_sdk; from wormhole.host.compiled import *; print(compiled_modules() == hot_modules())'
for one in gcc cc pip uv; do command -v $one; done
wormholectl --version >/dev/null 2>&1 && echo command
touch /opt/wormhole/x 2>/dev/null || echo closed
touch "$PWD/x" && echo "$PWD"
"""
    done = subprocess.run(buildah.runs(container, "sh", "-c", script), capture_output=True, text=True)
    expected = ["990", "True", *(["command"] if command else []), "closed", "/var/lib/wormhole"]
    assert done.stdout.split() == expected, done.stderr


@contextlib.contextmanager
def service(words: list[str], program: str) -> Iterator[subprocess.Popen[str]]:
    """Runs until the block ends; then ``program`` in it gets SIGTERM, and has to end well."""
    mark = uuid.uuid4().hex
    words[words.index("run") + 1 : words.index("run") + 1] = ["--env", f"{MARK}={mark}"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        try:
            yield running
            for pid, line in marked(mark).items():
                if program in line and "buildah" not in line:
                    os.kill(pid, signal.SIGTERM)
            assert running.wait(PATIENCE_S) == 0
        finally:
            for pid in marked(mark):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            running.kill()


def test_a_row_gets_from_mariadb_to_the_subscriber(buildah: Buildah, tmp_path: Path) -> None:
    services: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    options = dict(word.removeprefix("--").split("=") for word in services["mariadb"]["command"])
    with FLAVOURS["mariadb"](options=options, template=template("mariadb", options)) as server:
        # As the image of MariaDB does before it runs the file.
        server.sql(
            f"DROP USER '{server.user}'@'{server.host}'",
            f"CREATE USER '{server.user}'@'%' IDENTIFIED BY '{server.password}'",
            "CREATE DATABASE shop",
            *filter(None, map(str.strip, (COMPOSE / "mariadb.sql").read_text().split(";"))),
        )
        page, subscriber = free_port(), f"127.0.0.1:{free_port()}"
        text = (COMPOSE / "shop.toml").read_text()
        for old, new in {
            "mariadb:3306": f"{server.host}:{server.port}",
            "subscriber:7600": subscriber,
            "0.0.0.0:7480": f"127.0.0.1:{page}",
            "0.0.0.0:7490": f"127.0.0.1:{free_port()}",
        }.items():
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "shop.toml").write_text(text)
        (tmp_path / "db.password").write_text(server.password)
        config, secret = (
            tmp_path / "shop.toml:/etc/wormhole/shop.toml",
            tmp_path / "db.password:/run/secrets/db.password",
        )
        monitor, printer = (buildah.signed("from", "--pull-never", image) for image in ("wormhole", "wormhole-sdk"))
        for container, found in ((monitor, (config, secret)), (printer, (config, ROOT / "examples:/app/examples"))):
            for one in found:
                source, _, target = str(one).partition(":")
                buildah("copy", "-q", container, source, target)
        image = json.loads(buildah("inspect", "--type", "image", "wormhole"))["Docker"]["config"]
        ready = f"http://127.0.0.1:{page}/readyz"
        check = buildah.runs(monitor, *image["Healthcheck"]["Test"][1:], WORMHOLE_READY=ready)
        assert subprocess.run(check, capture_output=True).returncode != 0, "nothing answers yet"
        started = buildah.runs(monitor, *image["Entrypoint"], *services["monitor"]["command"])
        listening = buildah.runs(printer, *services["subscriber"]["command"], **services["subscriber"]["environment"])
        with service(started, "monitor run"), service(listening, "examples.printer") as prints:
            assert prints.stdout is not None
            for line in prints.stdout:
                if line == "insert shop.users 1 {'id': 1, 'name': 'Ann'}\n":
                    break
            else:
                pytest.fail("the row did not come")
            until(lambda: subprocess.run(check, capture_output=True).returncode == 0, "not ready")
