"""A real ZooKeeper of our own, on loopback only: what `wormholectl up`, the demo and the tests use.

A ``private`` one is closed to other users of the machine: its owner's credentials are those of its super user, and
nobody else has a right at any node. Others can still open connections, whose number is bounded, and use its memory
until it ends and is started again.

Its jars are found by :mod:`wormhole.coordination.zookeeper_jars`. It is started with a configuration *file*: the short
command-line form listens on all interfaces. It dies with its owner (:mod:`wormhole.host.process_guard`), also when the
owner is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from wormhole.config import CoordinatorConfig
from wormhole.coordination.access import digest_id
from wormhole.coordination.apply_access import take_over
from wormhole.coordination.credentials import make_credentials
from wormhole.coordination.zookeeper_jars import zookeeper_jars
from wormhole.host import process_guard
from wormhole.model.errors import ConfigError, CoordinationLost

__all__ = ["CLASSES", "EmbeddedZooKeeper"]

_JVM: Final = (
    "-Xmx256m",  # each connection may hold a request of 1 MiB, also one that is not complete
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Xlog:cds*=off",  # classes of another Java are no news
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
"""Beside the jars, where a checkout was prepared for tests: their classes as the JVM keeps them. A JVM that they do not
fit ignores them."""
_USER: Final = "wormhole"
_ROOT: Final = "/wormhole"
_START_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 5.0
_PORTS_TO_TRY: Final = 5
_LOG_TAIL: Final = 2000
_LOADING: Final = "ZKDatabase.loadDataBase"
"""In the stack trace of a server that ends because it cannot read its snapshots or its log."""


class _PortTakenError(Exception):
    """Somebody else got the port between our choosing it and the server's binding it."""


class EmbeddedZooKeeper:
    """One ZooKeeper server on ``127.0.0.1``.

    Without ``folder`` it lives in a private temporary folder that goes with it; a given folder is made if need be, and
    its data stays. :meth:`start` after :meth:`stop` or :meth:`kill` continues on the same port with the same data; in a
    folder that another one used before, on the port that one had, if it is free. Usable as a context manager, also an
    asynchronous one; the methods block for up to a few seconds. Linux only (pidfd). ``private``: only a client with the
    credentials in :attr:`auth_file` is admitted; a folder of an open server is closed with all that it holds.
    ``options``: further ones of its JVM. ``lines``: further ones of its configuration file.
    """

    def __init__(
        self,
        folder: Path | str | None = None,
        *,
        private: bool = False,
        jars: Path | None = None,
        options: Sequence[str] = (),
        lines: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._given = Path(folder).absolute() if folder is not None else None
        self._private = private
        self._jars = jars
        self._options = options
        self._lines = lines
        self._clock = clock
        self._folder: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._port = 0

    def __repr__(self) -> str:
        state = f"pid {self._pid}" if self._guard is not None else "stopped"
        return f"<EmbeddedZooKeeper 127.0.0.1:{self._port} {state}>"

    @property
    def hosts(self) -> str:
        """``127.0.0.1:port``, what a client connects to; known once started."""
        return f"127.0.0.1:{self._port}"

    @property
    def auth_file(self) -> Path | None:
        """The credentials of a private server, made at its first start; ``None`` for one that is open."""
        return self._folder / "credentials" if self._private and self._folder is not None else None

    @property
    def settings(self) -> CoordinatorConfig:
        """How to be admitted, with a root of our own; known once started."""
        return CoordinatorConfig(zookeeper=f"{self.hosts}{_ROOT}", auth_file=self.auth_file, same_user=self._private)

    @property
    def pid(self) -> int:
        """The server's process; 0 when it does not run."""
        return self._pid

    @property
    def alive(self) -> bool:
        """Whether it was started and has not ended by itself since."""
        return self._guard is not None and self._guard.poll() is None

    @property
    def folder(self) -> Path | None:
        """The folder of its data and ``zookeeper.log``; ``None`` before the first start and after :meth:`close`."""
        return self._folder

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises :class:`~wormhole.model.errors.ConfigError` when Java or the jars are missing, and
        :class:`~wormhole.model.errors.CoordinationLost` with the end of the server's log when it does not come up.
        """
        if self._guard is not None:
            return
        java, jars = _java(), zookeeper_jars(self._jars)
        if self._folder is None:
            self._folder = self._given or Path(tempfile.mkdtemp(prefix="wormhole-zookeeper-"))
        (self._folder / "tmp").mkdir(parents=True, exist_ok=True)
        if self._private:
            self._folder.chmod(0o700)  # one of an earlier release may be open
        fixed = self._port
        # Clients that know its address find it there again.
        before = None if fixed else _former_port(self._folder / "zoo.cfg")
        for _ in range(1 if fixed else _PORTS_TO_TRY):
            self._port, before = fixed or before or _free_port(), None
            try:
                self._launch(java, jars)
                if self._private:
                    take_over(self.settings)
                return
            except _PortTakenError:
                self._end_guard()
            except BaseException:
                self._end_guard()
                self._port = fixed
                raise
        port, self._port = self._port, fixed
        raise CoordinationLost(
            f"the embedded ZooKeeper cannot listen on 127.0.0.1:{port}: the port is taken",
            hint="end the program that listens there, or start again to get another port",
            code="embedded-zookeeper-failed",
        )

    def stop(self) -> None:
        """End the server; its data stays for another :meth:`start`. Idempotent."""
        self._end_guard()

    def kill(self) -> None:
        """End the server as ``kill -9`` does, for tests of what others make of it."""
        if self._guard is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._guard.wait(_STOP_TIMEOUT_S)
        self._end_guard()

    def close(self) -> None:
        """End the server and remove the private folder, if it has one. Idempotent."""
        self._end_guard()
        if self._folder is not None and self._given is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def _launch(self, java: str, jars: Sequence[Path]) -> None:
        folder = self._folder
        assert folder is not None
        data = folder / "data"
        settings = folder / "zoo.cfg"
        text = _SETTINGS.format(data=data, port=self._port) + self._lines
        if self.auth_file is not None:
            text += _SUPER.format(identity=digest_id(make_credentials(self.auth_file, _USER)))
        # Made anew: others may be able to read one of an earlier release.
        made = settings.with_name(f".{settings.name}.new")
        made.unlink(missing_ok=True)
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        made.replace(settings)
        # A private folder goes with the process anyway, so its writes need not reach the disk.
        sync = "yes" if self._given else "no"
        classes = jars[0].with_name(CLASSES)
        command = [
            java,
            *_JVM,
            *([f"-XX:SharedArchiveFile={classes}"] if classes.exists() else []),
            *self._options,
            f"-Dzookeeper.forceSync={sync}",
            f"-Djava.io.tmpdir={folder / 'tmp'}",
            "-cp",
            os.pathsep.join(map(str, jars)),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(settings),
        ]
        guard = [sys.executable, "-I", "-S", process_guard.__file__, str(os.getpid())]
        guard.append("" if self._given else str(folder))
        with (folder / "zookeeper.log").open("wb") as log:
            # A session of its own: Ctrl-C in a terminal reaches the owner, who stops the server when it is ready to.
            self._guard = subprocess.Popen(
                [*guard, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert self._guard.stdout is not None
        self._pid = int(self._guard.stdout.readline() or 0)
        self._await_ready(data)

    def _await_ready(self, data: Path) -> None:
        assert self._guard is not None
        deadline = self._clock() + _START_TIMEOUT_S
        while not self._answers(data):
            ended = self._guard.poll() is not None
            if ended and "BindException" in self._log():
                raise _PortTakenError
            if ended or self._clock() > deadline:
                what = "ended at once" if ended else f"did not answer within {_START_TIMEOUT_S:.0f} s"
                if ended and _LOADING in self._log():
                    raise CoordinationLost(
                        f"the embedded ZooKeeper cannot read its data in {data}: a file there is damaged, "
                        f"see {self._folder}/zookeeper.log",
                        hint=f"put {data} back from a copy, or move it away, and start again. Without it a "
                        "configuration that "
                        "`wormholectl config apply` wrote has to be applied again; flows with local markers go on, "
                        "flows with markers in ZooKeeper are held until `wormholectl flows accept-loss APP/SHARD`",
                        code="embedded-zookeeper-failed",
                    )
                raise CoordinationLost(
                    f"the embedded ZooKeeper {what}; its log ends: {self._log()[-_LOG_TAIL:].strip() or '(empty)'}",
                    hint=f"see {self._folder}/zookeeper.log; `java -version` must say 11 or newer",
                    code="embedded-zookeeper-failed",
                )
            time.sleep(0.02)

    def _answers(self, data: Path) -> bool:
        """Whether *our* server serves: another one on the same port has another data folder."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1.0) as connection:
                connection.sendall(b"conf")
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError as error:
            if error.errno in (errno.ECONNREFUSED, errno.ECONNRESET) or isinstance(error, TimeoutError):
                return False
            raise
        return f"dataDir={data}/".encode() in answer

    def _log(self) -> str:
        assert self._folder is not None
        try:
            return (self._folder / "zookeeper.log").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def _end_guard(self) -> None:
        guard, self._guard, self._pid = self._guard, None, 0
        if guard is None:
            return
        if guard.poll() is None:
            guard.terminate()
            try:
                guard.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                guard.kill()  # PR_SET_PDEATHSIG takes the server along
                guard.wait()
        if guard.stdout is not None:
            guard.stdout.close()


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


def _former_port(settings: Path) -> int | None:
    with contextlib.suppress(OSError):
        found = re.search(r"^clientPort=(\d+)$", settings.read_text(), re.MULTILINE)
        return int(found[1]) if found else None
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
