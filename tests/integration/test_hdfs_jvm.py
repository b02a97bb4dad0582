"""The JVM with Hadoop's client: whose messages it has, what it refuses, and when it ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from datastores.hdfs.decode.messages import MESSAGES
from datastores.hdfs.java.jvm import Jvm
from datastores.hdfs.java.name_node import NameNode
from datastores.hdfs.url import Address
from tests.support.eventually import until
from tests.support.ports import free_port
from wormhole.model.errors import SourceUnavailable, UsageError

_STARTS_ONE = """
import sys
from datastores.hdfs.java.jvm import Jvm
jvm = Jvm({})
print(jvm.pid, flush=True)
sys.stdin.read()
"""


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def jvm() -> Iterator[Jvm]:
    jvm = Jvm({})
    yield jvm
    jvm.stop()
    assert not is_running(jvm.pid)


def fields(message: descriptor_pb2.DescriptorProto) -> dict[int, tuple[str, bool]]:
    return {field.number: (field.name, field.label == field.LABEL_REPEATED) for field in message.field}


def test_the_messages_are_those_of_hadoop(jvm: Jvm) -> None:
    protos = jvm.classes.org.apache.hadoop.hdfs.protocol.proto
    theirs: dict[str, dict[int, tuple[str, bool]]] = {}
    for outer in (protos.InotifyProtos, protos.AclProtos, protos.XAttrProtos, protos.ClientNamenodeProtocolProtos):
        file = descriptor_pb2.FileDescriptorProto.FromString(outer.getDescriptor().toProto().toByteArray())
        theirs |= {message.name: fields(message) for message in file.message_type}
    for name, text in MESSAGES.items():
        ours = {int(number): (field, kind.endswith("*")) for number, field, kind in map(str.split, text.split(", "))}
        assert ours.items() <= theirs[name].items(), name
    batches = theirs["EventsListProto"]
    assert set(batches) - {1} == {2, 3, 4, 5}, "Hadoop's answer has a field that is not read"


def test_its_account_is_the_one_that_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "another")
    jvm = Jvm({"HADOOP_USER_NAME": "ann"})
    user = jvm.classes.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().getShortUserName()
    jvm.stop()
    assert user == "ann"


def test_another_process_without_the_token_is_refused(jvm: Jvm) -> None:
    port = jvm.classes._gateway_client.port
    stranger: Any = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    with pytest.raises(Py4JError):
        stranger.jvm.System.currentTimeMillis()


def test_it_ends_with_the_process_that_started_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _STARTS_ONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert is_running(pid)
        process.kill()
    until(lambda: not is_running(pid), "the JVM outlives its process")


def test_an_address_without_a_name_node_is_tried_again_and_a_killed_jvm_is_replaced() -> None:
    name_node = NameNode(Address("", (f"localhost:{free_port()}",)))
    try:
        with pytest.raises(SourceUnavailable, match="does not serve its edits") as error:
            name_node.edits(1)
        assert error.value.hint
        first = name_node.pid
        subprocess.run(["kill", "-9", str(first)], check=True)
        until(lambda: name_node.pid == 0, "the JVM was killed")
        with pytest.raises(SourceUnavailable):
            name_node.edits(1)
        assert name_node.pid not in (0, first)
    finally:
        name_node.stop()
    with pytest.raises(SourceUnavailable, match="stopped"):
        name_node.edits(1)


def test_without_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(UsageError, match="no Java starts") as error:
        Jvm({})
    assert error.value.code == "extra-missing"
    assert "jre" in str(error.value.hint)
