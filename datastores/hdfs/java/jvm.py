"""Starts and ends a JVM with Hadoop's client. It listens on loopback, with a token, and ends with this process."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway

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
_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError")
# Seconds; longer than Hadoop's own timeout of a call.
_READ_TIMEOUT_S: Final = 90.0
_STOP_S: Final = 10.0
# The library logs each failed call with a traceback, also calls that only release an object. Failures are also raised.
logging.getLogger("py4j").setLevel(logging.CRITICAL)


class Jvm:
    """A running JVM. ``classes``: the Java packages."""

    def __init__(self, variables: Mapping[str, str], folders: tuple[str, ...] = ()) -> None:
        """Start the JVM. ``variables``: environment variables that are added to this process's. ``folders``: folders
        with configuration files.

        Raises :class:`~wormhole.model.errors.UsageError`."""
        jars = [str(next(_JARS.glob(f"{name}-[0-9]*.jar"))) for name in _NEEDED]
        home = os.environ.get("JAVA_HOME")
        command = [
            str(Path(home, "bin", "java")) if home else "java",
            *("-cp", os.pathsep.join((*folders, *jars))),
            *_OPTIONS,
            # The JVM ends when its standard input closes, which this process's end causes.
            *("py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"),
        ]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **variables},
                process_group=0,
            )
        except OSError as error:
            raise _no_java(str(error)) from error
        assert self._process.stdout is not None
        with self._process.stdout as said:
            port, token = said.readline().decode().strip(), said.readline().decode().strip()
        if not port.isdecimal():
            self._end()
            raise _no_java(f"{command[0]} ended with {self._process.returncode}")
        self._gateway: Any = JavaGateway(
            gateway_parameters=GatewayParameters(port=int(port), auth_token=token, read_timeout=_READ_TIMEOUT_S)
        )
        self.classes: Any = self._gateway.jvm

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether the JVM's process runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End it."""
        self._gateway.close()
        self._end()

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _no_java(why: str) -> UsageError:
    return UsageError(
        f"no Java starts for Hadoop's client: {why}",
        hint="install Java 17 or newer, for example Debian's openjdk-17-jre-headless",
        code="extra-missing",
    )
