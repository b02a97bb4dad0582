"""Finds the embedded ZooKeeper's jars: the folder that the configuration names, or the first of the known folders."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wormhole.model.errors import ConfigError

__all__ = ["zookeeper_jars"]

_SERVER: Final = ("zookeeper-[0-9]*.jar", "zookeeper.jar")
# The jars that a standalone server loads, measured by leaving jars out. The other 200 of PySpark would only cost
# start-up time.
_PYSPARK: Final = (
    "audience-annotations-*.jar",
    "commons-cli-*.jar",
    "commons-io-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "metrics-core-*.jar",
    "netty-buffer-[0-9]*.jar",
    "netty-codec-[0-9]*.jar",
    "netty-codec-base-*.jar",
    "netty-common-*.jar",
    "netty-handler-[0-9]*.jar",
    "netty-resolver-[0-9]*.jar",
    "netty-transport-[0-9]*.jar",
    "netty-transport-classes-epoll-*.jar",
    "netty-transport-native-unix-common-*.jar",
    "slf4j-api-*.jar",
    "snappy-java-*.jar",
    "zookeeper-[0-9]*.jar",
    "zookeeper-jute-*.jar",
)
# The jars of Debian's libzookeeper-java, with slf4j-simple to print the server's log.
_DEBIAN: Final = (
    "commons-cli.jar",
    "commons-io.jar",
    "metrics-core.jar",
    "netty-all.jar",
    "slf4j-api.jar",
    "slf4j-simple.jar",
    "snappy-java.jar",
    "zookeeper.jar",
    "zookeeper-jute.jar",
)
_DEBIAN_FOLDER = Path("/usr/share/java")


def zookeeper_jars(folder: Path | None) -> list[Path]:
    """The jars to start a server with: those in ``folder``, or, if none is given, the installed ones.

    Raises :class:`~wormhole.model.errors.ConfigError` when the server's own jar is missing.
    """
    if folder is not None:
        if jars := _found(folder, ("*.jar",)):
            return jars
        raise ConfigError(
            f'coordinator.zookeeper_jars = "{folder}": no zookeeper-*.jar is there',
            hint="name the folder `lib` of a ZooKeeper release, or leave the setting out",
            code="embedded-zookeeper-failed",
        )
    # The first folder is the one that is prepared in a checkout.
    places: list[tuple[Path, tuple[str, ...]]] = [(Path(sys.prefix, "share", "wormhole", "zookeeper"), ("*.jar",))]
    # find_spec looks for the package without importing it, which would take longer than starting the server.
    if (pyspark := importlib.util.find_spec("pyspark")) is not None and pyspark.origin is not None:
        places.append((Path(pyspark.origin).with_name("jars"), _PYSPARK))
    places.append((_DEBIAN_FOLDER, _DEBIAN))
    for place, patterns in places:
        if jars := _found(place, patterns):
            return jars
    raise ConfigError(
        "the embedded ZooKeeper needs the jars of a ZooKeeper, and none are installed",
        hint="pip install 'wormhole-pubsub[spark]', whose PySpark has them; or on Debian, as root: apt-get install "
        "libzookeeper-java; or name a folder that has them as zookeeper_jars in [coordinator]",
        code="embedded-zookeeper-failed",
    )


def _found(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """The jars of ``folder`` that match ``patterns``; none if the server's jar is not among them."""
    if not any(True for pattern in _SERVER for _ in folder.glob(pattern)):
        return []
    return sorted({jar for pattern in patterns for jar in folder.glob(pattern)})
