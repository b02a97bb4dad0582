"""The public names, frozen: adding one is a decision, losing one breaks applications."""

from __future__ import annotations

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
