"""Runs a ZooKeeper server as a child process, on loopback only. `wormholectl up`, the demo and the tests use it.

A ``private`` server is closed to other users of the machine: its owner's credentials are those of its super user, and
no other identity has a right at any node. Other users can still open connections, whose number is bounded. They can use
its memory until it ends and is started again.

Its jars are found by :mod:`wormhole.coordination.zookeeper_jars`. It is started with a configuration *file*, because
the short command-line form listens on all interfaces. It ends with its owner (:mod:`wormhole.host.process_guard`), also
when the owner is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from wormhole.config import CoordinatorConfig
from wormhole.coordination.access import digest_id
from wormhole.coordination.apply_access import take_over
from wormhole.coordination.credentials import make_credentials
from wormhole.coordination.zookeeper_jars import zookeeper_jars
from wormhole.host.private_files import private_opener
from wormhole.host.private_server import LOG_TAIL, PrivateServer
from wormhole.model.errors import ConfigError, CoordinationLost
from wormhole.model.replace_file import replace_file

__all__ = ["CLASSES", "EmbeddedZooKeeper"]

_JVM: Final = (
    "-Xmx256m",  # each connection may hold a request of 1 MiB, also one that is not complete
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Xlog:cds*=off",  # no warnings about a class archive of another Java
    "-XX:-UsePerfData",  # no file in /tmp/hsperfdata_*
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.awt.headless=true",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",  # where Debian's jars print the log
    "-Dzookeeper.preAllocSize=1024",  # KiB; the default reserves 64 MiB for each log file
)
# Sessions down to 400 ms, so that tests of lost sessions are short; the client chooses.
_SETTINGS: Final = """\
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=conf
tickTime=200
minSessionTimeout=400
maxSessionTimeout=120000
maxClientCnxns=0
maxCnxns=200
snapCount=20000
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""
# A name that ZooKeeper does not know becomes a system property, so that it does not show among the arguments of the
# process.
_SUPER: Final = "DigestAuthenticationProvider.superDigest={identity}\n"
CLASSES: Final = "classes.jsa"
"""The jars' classes as the JVM keeps them, beside the jars in a checkout that was prepared for tests. A JVM that they
do not fit ignores them.
"""
_USER: Final = "wormhole"
_ROOT: Final = "/wormhole"
_LOADING: Final = "ZKDatabase.loadDataBase"
"""Text in the stack trace of a server that ends because it cannot read its snapshots or its log."""


class EmbeddedZooKeeper(PrivateServer):
    """One ZooKeeper server on ``127.0.0.1``. Usable as an asynchronous context manager too.

    In a folder that another server used before, it starts on that server's port, if it is free. ``private``: only a
    client with the credentials in :attr:`auth_file` is admitted. A folder of an open server is then closed with all its
    nodes. ``options``: further options of its JVM. ``lines``: further lines of its configuration file.
    """

    flavour = "zookeeper"
    start_timeout_s = 30.0
    stop_timeout_s = 5.0

    def __init__(
        self,
        folder: Path | None = None,
        *,
        private: bool = False,
        jars: Path | None = None,
        options: Sequence[str] = (),
        lines: str = "",
    ) -> None:
        super().__init__(folder)
        self._private = private
        self._jars = jars
        self._options = options
        self._lines = lines
        self._java = ""
        self._class_path: Sequence[Path] = ()

    @property
    def title(self) -> str:
        return "embedded ZooKeeper"

    @property
    def hosts(self) -> str:
        """``127.0.0.1:port``, the address for clients. Known once started."""
        return f"{self.host}:{self.port}"

    @property
    def auth_file(self) -> Path | None:
        """The credentials of a private server, made at its first start; ``None`` for an open server."""
        return self._folder / "credentials" if self._private and self._folder is not None else None

    @property
    def settings(self) -> CoordinatorConfig:
        """The settings of a client, with the product's own root. Known once started."""
        return CoordinatorConfig(zookeeper=f"{self.hosts}{_ROOT}", auth_file=self.auth_file, same_user=self._private)

    @property
    def _configuration(self) -> Path:
        return self.folder / "zoo.cfg"

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    # -- steps of a private server

    def find_programs(self) -> None:
        self._java, self._class_path = _java(), zookeeper_jars(self._jars)

    def prepare(self) -> None:
        if self._private:
            self.folder.chmod(0o700)  # an earlier release may have left the folder open

    def former_port(self) -> int:
        with contextlib.suppress(OSError):
            found = re.search(r"^clientPort=(\d+)$", self._configuration.read_text(), re.MULTILINE)
            return int(found[1]) if found else 0
        return 0

    def admit(self) -> None:
        if self._private:
            take_over(self.settings)

    def start_command(self) -> list[str]:
        text = _SETTINGS.format(data=self.data, port=self.port) + self._lines
        if self.auth_file is not None:
            text += _SUPER.format(identity=digest_id(make_credentials(self.auth_file, _USER)))
        # Written again: other users may be able to read a file of an earlier release.
        replace_file(self._configuration, text, sync=False, opener=private_opener)
        # A private folder is removed with the process anyway, so its writes need not reach the disk.
        sync = "yes" if self._given else "no"
        classes = self._class_path[0].with_name(CLASSES)
        return [
            self._java,
            *_JVM,
            *([f"-XX:SharedArchiveFile={classes}"] if classes.exists() else []),
            *self._options,
            f"-Dzookeeper.forceSync={sync}",
            f"-Djava.io.tmpdir={self.folder / 'tmp'}",
            "-cp",
            os.pathsep.join(map(str, self._class_path)),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self._configuration),
        ]

    def answers(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=1.0) as connection:
                connection.sendall(b"conf")
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError as error:
            if error.errno in (errno.ECONNREFUSED, errno.ECONNRESET) or isinstance(error, TimeoutError):
                return False
            raise
        return f"dataDir={self.data}/".encode() in answer

    def failure(self, what: str, hint: str) -> CoordinationLost:
        return CoordinationLost(f"the {self.title} {what}", hint=hint, code="embedded-zookeeper-failed")

    def start_failure(self, what: str, said: str) -> CoordinationLost:
        if not self.alive and _LOADING in said:
            return self.failure(
                f"cannot read its data in {self.data}: a file there is damaged, see {self.log}",
                f"put {self.data} back from a copy, or move it away, and start again. Without it a configuration that "
                "`wormholectl config apply` wrote has to be applied again; flows with local markers go on, "
                "flows with markers in ZooKeeper are held until `wormholectl flows accept-loss APP/SHARD`",
            )
        return self.failure(
            f"{what}; its log ends: {said[-LOG_TAIL:].strip() or '(empty)'}",
            f"see {self.log}; `java -version` must say 11 or newer",
        )


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else None
    java = java or shutil.which("java")
    if java is None:
        raise ConfigError(
            "the embedded ZooKeeper needs Java, and there is no `java` on the PATH or in JAVA_HOME",
            hint=(
                "on Debian, as root: apt-get install default-jre-headless; or name a running ZooKeeper in [coordinator]"
            ),
            code="embedded-zookeeper-failed",
        )
    return java
