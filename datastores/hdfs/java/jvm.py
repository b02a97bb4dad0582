"""A JVM with Hadoop's client, on loopback, with a token. It ends when this process does, however that ends."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError

from wormhole.model.errors import UsageError

__all__ = ["Jvm"]

_JARS: Final = Path(pyspark.__file__).with_name("jars")
_NEEDED: Final = (
    "hadoop-client-api",
    "hadoop-client-runtime",
    "jcl-over-slf4j",
    "log4j-1.2-api",
    "log4j-api",
    "log4j-core",
    "log4j-slf4j2-impl",
    "py4j",
    "slf4j-api",
)
_HEAP: Final = "-Xmx256m"
# Beyond Hadoop's own limit of a call.
_READ_TIMEOUT_S: Final = 90.0
_STOP_S: Final = 10.0


class Jvm:
    """A running JVM. ``classes``: its packages."""

    def __init__(self, properties: Mapping[str, str], folders: tuple[str, ...] = ()) -> None:
        """Start it. ``folders``: with configuration files. Raises :class:`~wormhole.model.errors.UsageError`."""
        jars = [str(next(_JARS.glob(f"{name}-[0-9]*.jar"))) for name in _NEEDED]
        try:
            port, token, process = launch_gateway(
                jarpath=next(jar for jar in jars if "/py4j-" in jar),
                classpath=os.pathsep.join((*folders, *jars)),
                java_path=str(Path(home, "bin", "java")) if (home := os.environ.get("JAVA_HOME")) else "java",
                javaopts=[
                    _HEAP,
                    "-XX:+UseSerialGC",
                    "-XX:+ExitOnOutOfMemoryError",
                    *(f"-D{name}={value}" for name, value in properties.items()),
                ],
                die_on_exit=True,  # its standard input ends with this process
                enable_auth=True,
                return_proc=True,
            )
        except (OSError, Py4JError, ValueError) as error:
            raise UsageError(
                f"no Java starts for Hadoop's client: {error}",
                hint="install Java 17 or newer, for example Debian's openjdk-17-jre-headless",
                code="extra-missing",
            ) from error
        self._process: subprocess.Popen[bytes] = process
        self._gateway: Any = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, read_timeout=_READ_TIMEOUT_S)
        )
        self.classes: Any = self._gateway.jvm

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End it."""
        self._gateway.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
