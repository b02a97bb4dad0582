"""The public names, frozen: adding one is a decision, losing one breaks applications. What their import costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import subscriber_sdk
import subscriber_sdk.testing


def test_the_names_that_an_application_needs() -> None:
    assert subscriber_sdk.__all__ == [
        "UNAVAILABLE",
        "AckLater",
        "BatchInfo",
        "DataLoss",
        "Datamarker",
        "EpochRefused",
        "FlowHalted",
        "HandlerFailed",
        "Key",
        "KeyRange",
        "LogPosition",
        "LossDecision",
        "LossKind",
        "ModelMismatch",
        "NoticeKind",
        "Op",
        "RetryPolicy",
        "Router",
        "Running",
        "ScanEnd",
        "SchemaChange",
        "ShardNotice",
        "Subscriber",
        "SubscriberOptions",
        "TlsFiles",
        "Transaction",
        "TransactionRolledBack",
        "Unavailable",
        "Update",
        "UsageError",
        "Value",
        "WormholeError",
        "decode",
        "marker_from_bytes",
        "marker_to_bytes",
        "run",
        "serve",
        "transactions",
        "updates",
    ]


def test_the_names_that_its_tests_need() -> None:
    assert subscriber_sdk.testing.__all__ == [
        "Change",
        "Kit",
        "KitFlow",
        "ScriptedPublisher",
        "body_of",
        "frames",
        "marker_at",
        "read",
        "update",
    ]


def test_importing_the_sdk_imports_no_models_and_no_client_of_the_coordinator() -> None:
    code = "import subscriber_sdk, sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "kazoo", "cryptography", "publisher"} & set(loaded)
    assert {"subscriber_sdk", "grpc"} <= set(loaded)


@pytest.mark.parametrize("name", subscriber_sdk.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(subscriber_sdk, name) is not None


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        subscriber_sdk.nothing  # noqa: B018 - the test
