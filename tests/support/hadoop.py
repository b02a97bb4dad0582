"""A private HDFS, and a YARN beside it: Hadoop's own servers in one JVM on loopback, which ends when this process does.

The servers are Hadoop's minicluster, run with the jars of PySpark, which has the Hadoop client of the same release. Its
other jars are fetched when a test asks for them first; tests that do are soak tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyspark
from py4j.java_gateway import JavaGateway

from scripts import pinned_jars
from tests.support import jars as pinned
from tests.support.ports import free_port

__all__ = ["NameNodeServer", "hdfs", "highly_available", "yarn"]

_SPARK_JARS: Final = Path(pyspark.__file__).with_name("jars")
_SCHEDULER: Final = """<configuration>
<property><name>yarn.scheduler.capacity.root.queues</name><value>default</value></property>
<property><name>yarn.scheduler.capacity.root.default.capacity</name><value>100</value></property>
<property><name>yarn.scheduler.capacity.maximum-am-resource-percent</name><value>1.0</value></property>
</configuration>
"""
_NODE: Final = {
    # A disk that others fill would end every container, and so would what a JVM reserves and never touches.
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.resource.memory-mb": "8192",
    "yarn.nodemanager.resource.cpu-vcores": "8",
    "yarn.scheduler.minimum-allocation-mb": "128",
}
_CONNECT_MS: Final = 300_000


def _jars() -> Path:
    """The folder of the minicluster's jars."""
    return pinned.folder(pinned_jars.HADOOP, "hadoop", "Hadoop minicluster")


@contextmanager
def _java(folder: Path) -> Iterator[tuple[Any, subprocess.Popen[bytes]]]:
    """The package ``org.apache.hadoop`` of a JVM of its own, which writes to ``folder/hadoop.log``, and its process."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "capacity-scheduler.xml").write_text(_SCHEDULER)
    path = [str(folder), f"{_jars()}/*", f"{_SPARK_JARS}/*"]
    folders = [f"-D{name}={folder}" for name in ("test.build.data", "java.io.tmpdir")]
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *folders, "-Dlog4j2.level=warn"]
    with (folder / "hadoop.log").open("w") as said:
        gateway: Any = JavaGateway.launch_gateway(
            jarpath=str(next(_SPARK_JARS.glob("py4j-*.jar"))),
            classpath=os.pathsep.join(path),
            javaopts=options,
            die_on_exit=True,
            redirect_stdout=said,
            redirect_stderr=said,
            cwd=str(folder),
        )
        process: subprocess.Popen[bytes] = gateway.java_process
        try:
            yield gateway.jvm.org.apache.hadoop, process
        finally:
            gateway.close()
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


@contextmanager
def _files(hadoop: Any, folder: Path, settings: Mapping[str, str]) -> Iterator[tuple[Any, Any]]:
    conf = hadoop.conf.Configuration()
    conf.set("hdfs.minidfs.basedir", str(folder / "hdfs"))
    conf.set("hadoop.tmp.dir", str(folder / "tmp"))
    for name, value in settings.items():
        conf.set(name, value)
    cluster = hadoop.hdfs.MiniDFSCluster.Builder(conf).numDataNodes(1).build()
    try:
        yield conf, cluster
    finally:
        cluster.shutdown()


class NameNodeServer:
    """A NameNode in a JVM of its own, without DataNodes, on a port that it keeps. It keeps its files in ``folder``.

    ``settings``: of Hadoop. ``hadoop``: the package ``org.apache.hadoop`` of its JVM. ``cluster``: Hadoop's
    ``MiniDFSCluster``. ``files``: its file system, as the superuser. Symbolic links are enabled in it.
    """

    hadoop: Any
    cluster: Any
    files: Any

    def __init__(self, folder: Path, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        self.folder = folder
        self.names = folder / "hdfs" / "name-0-1"
        self._settings = settings
        self._port = free_port()
        self._open = ExitStack()
        self.url = f"hdfs://localhost:{self._port}/"
        self.start(fresh=True)

    def start(self, *, fresh: bool = False) -> None:
        """Start it. ``fresh``: formatted."""
        self.hadoop, self.process = self._open.enter_context(_java(self.folder))
        conf = self.hadoop.conf.Configuration()
        conf.set("hdfs.minidfs.basedir", str(self.folder / "hdfs"))
        for name, value in self._settings.items():
            conf.set(name, value)
        builder = self.hadoop.hdfs.MiniDFSCluster.Builder(conf).numDataNodes(0).nameNodePort(self._port)
        self.cluster = builder.format(fresh).enableManagedDfsDirsRedundancy(False).build()
        self.hadoop.fs.FileSystem.enableSymlinks()
        conf.set("dfs.replication", "1")  # the cluster takes the number of its DataNodes for it
        self.files = self.hadoop.fs.FileSystem.newInstance(self.cluster.getURI(), conf)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self.close()

    def replace(self, saved: Path) -> None:
        """Put back the files of ``names``, as they were copied. It does not run."""
        for names in self.names.parent.glob("name-0-*"):
            shutil.rmtree(names)
            shutil.copytree(saved, names)

    def close(self) -> None:
        """End its JVM."""
        self._open.close()

    def path(self, text: str) -> Any:
        """A path, for calls of ``files``."""
        return self.hadoop.fs.Path(text)

    def checkpoint(self) -> None:
        """Write an image, and purge the edits before it, without the cushion that a NameNode keeps."""
        actions = self.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction
        self.files.setSafeMode(actions.SAFEMODE_ENTER)
        self.files.saveNamespace()
        self.files.setSafeMode(actions.SAFEMODE_LEAVE)
        edits = self.cluster.getNamesystem().getFSImage().getEditLog()
        edits.purgeLogsOlderThan(edits.getCurSegmentTxId())


@contextmanager
def hdfs(folder: Path) -> Iterator[tuple[str, Any]]:
    """An HDFS of a name node and a data node that keeps its files in ``folder``: its URL, ``hdfs://localhost:PORT``,
    and Hadoop's ``MiniDFSCluster``, of which a test stops and restarts nodes.
    """
    with _java(folder) as (hadoop, _), _files(hadoop, folder, {}) as (_, cluster):
        yield cluster.getURI().toString(), cluster


@contextmanager
def highly_available(folder: Path) -> Iterator[Any]:
    """An HDFS with two NameNodes that share a folder of edits, the first one active: Hadoop's ``MiniDFSCluster``."""
    folder.mkdir(parents=True, exist_ok=True)
    with _java(folder) as (hadoop, _):
        conf = hadoop.conf.Configuration()
        conf.set("hdfs.minidfs.basedir", str(folder / "hdfs"))
        conf.set("dfs.ha.tail-edits.period", "1")
        builder = hadoop.hdfs.MiniDFSCluster.Builder(conf).numDataNodes(0)
        cluster = builder.nnTopology(hadoop.hdfs.MiniDFSNNTopology.simpleHATopology()).build()
        try:
            cluster.transitionToActive(0)
            yield cluster
        finally:
            cluster.shutdown()


@contextmanager
def yarn(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """An HDFS as of :func:`hdfs`, and a YARN of one node that uses it: the URL of the first, and the environment in
    which ``spark-submit --master yarn`` finds both.
    """
    with ExitStack() as stack:
        hadoop, _ = stack.enter_context(_java(folder))
        conf, files = stack.enter_context(_files(hadoop, folder, _NODE))
        cluster = hadoop.yarn.server.MiniYARNCluster("wormhole", 1, 1, 1)
        stack.callback(cluster.stop)
        cluster.init(conf)
        cluster.start()
        assert cluster.waitForNodeManagersToConnect(_CONNECT_MS), (folder / "hadoop.log").read_text()
        site = folder / "hadoop-conf"
        site.mkdir()
        client: Any = cluster.getConfig()
        names = ("fs.defaultFS", "yarn.resourcemanager.address", "yarn.resourcemanager.scheduler.address")
        lines = [f"<property><name>{name}</name><value>{client.get(name)}</value></property>" for name in names]
        (site / "yarn-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")
        (site / "core-site.xml").write_text(f"<configuration>{lines[0]}</configuration>")
        yield files.getURI().toString(), {"HADOOP_CONF_DIR": str(site), "YARN_CONF_DIR": str(site)}
