"""The sink of Kafka and a broker with TLS, logins and rules of access."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from sinks.kafka.kind import KIND
from sinks.kafka.settings import KafkaSettings
from sinks.port import Sink
from subscriber_sdk import HandlerFailed
from subscriber_sdk.testing import Kit, update
from tests.support.certificates import Authority
from tests.support.eventually import PATIENCE_S
from tests.support.kafka_server import KafkaServer
from wormhole.model.errors import TargetRefused
from wormhole.model.findings import Severity

# The kit calls what would run in a thread in place, on its loop.
pytestmark = pytest.mark.allow_blocking

SCRAM = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
TOPIC, TRANSACTION = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
# What docs/sink-kafka.md names.
RIGHTS = [
    (TOPIC, "orders", AclOperation.WRITE),
    (TOPIC, "orders", AclOperation.DESCRIBE),
    (TOPIC, "markers", AclOperation.WRITE),
    (TOPIC, "markers", AclOperation.READ),
    (TOPIC, "markers", AclOperation.DESCRIBE),
    (TRANSACTION, "wormhole/", AclOperation.WRITE),
    (TRANSACTION, "wormhole/", AclOperation.DESCRIBE),
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[KafkaServer]:
    files = authority.issue("broker")
    pem = authority.ca.with_name("broker.pem")
    pem.write_bytes(Path(files.key).read_bytes() + Path(files.cert).read_bytes())
    with KafkaServer(pem=pem) as server:
        server.create("markers", cleanup_policy="compact")
        server.create("orders")
        admin = server.admin()
        users: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, SCRAM, b"right") for user in ("sink", "poor")
        ]
        rules = [
            AclBinding(kind, name, ResourcePatternType.PREFIXED, "User:sink", "*", right, AclPermissionType.ALLOW)
            for kind, name, right in RIGHTS
        ]
        for future in (*admin.alter_user_scram_credentials(users).values(), *admin.create_acls(rules).values()):
            future.result(PATIENCE_S)
        yield server


@pytest.fixture
def given(server: KafkaServer, authority: Authority, tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "password").write_text("right\n")
    names = {"topic": "orders", "marker_topic": "markers", "password_file": tmp_path / "password"}
    return {"url": f"kafka://sink@{server.secure}", "tls": {"ca": authority.ca}, "timeout": "5s", **names}


def opened(given: dict[str, Any]) -> Sink:
    return KIND.open("lines", KafkaSettings.model_validate(given))


def refusal(kit: Kit, given: dict[str, Any]) -> str:
    """The code with which a flow halts, which an examination reports too."""
    with pytest.raises(HandlerFailed) as failed:
        kit.attach(opened(given).subscriber).commit(update("orders", key=1, after={"text": "a"}))
    cause = failed.value.__cause__
    assert isinstance(cause, TargetRefused), repr(cause)
    return cause.code


def test_an_account_with_the_rights_of_the_page_writes(
    wormhole_kit: Kit, server: KafkaServer, given: dict[str, Any]
) -> None:
    before = len(server.records("orders"))
    flow = wormhole_kit.attach(opened(given).subscriber)
    flow.commit(update("orders", key=1, after={"text": "a"}))
    flow.crash_and_redeliver(0, subscriber=opened(given).subscriber)
    flow.commit(update("orders", key=1, after={"text": "b"}))
    assert len(server.records("orders")) == before + 2
    report = asyncio.run(opened(given).examine())
    assert Severity.PROBLEM not in {finding.severity for finding in report.findings}


def test_a_wrong_password_halts(wormhole_kit: Kit, given: dict[str, Any]) -> None:
    given["password_file"].write_text("wrong\n")
    assert refusal(wormhole_kit, given) == "login-refused"
    with pytest.raises(TargetRefused) as refused:
        asyncio.run(opened(given).examine())
    assert refused.value.code == "login-refused"


@pytest.mark.parametrize(("user", "topic"), [("poor", "orders"), ("sink", "others")])
def test_an_account_without_a_right_halts(
    wormhole_kit: Kit, given: dict[str, Any], server: KafkaServer, user: str, topic: str
) -> None:
    more = {"url": f"kafka://{user}@{server.secure}", "topic": topic}
    assert refusal(wormhole_kit, given | more) == "account-lacks-rights"
