"""What an application installs to receive updates.

The way of one update through this package::

    server         the gRPC service that the publisher dials; bytes only
    publishers     which publishers are connected, as the log shows it
    connection     one stream joined to the flows that it feeds
    session        pure: frames in, events out; answers in, frames out   (flow: one epoch of a flow; outbox)
    shards         which epoch of which shard is at work in this process
    flow_worker    one epoch of a flow at work   (epoch: its state; acks: pure; flow_port: where its answers go)
      callbacks    runs the callbacks within their time limit     (parallel; keyorder: pure; watchdog, meter)
      recovery     one failed: another try, a rollback, parking, or a halt   (retry: pure)
      parking      stores an update in place of its callback                 (gate: pure)
      backfill_calls   reports the ends of ranges and tables of existing rows  (backfill: pure)
    schemas        which schema each table has, and where it changes: pure
    arrow          makes Arrow columns of updates, where pyarrow is installed
    handlers       which callbacks the application overrides, on the loop or in a thread     (router: by table)
    tracing        a span for each batch, where OpenTelemetry is installed

``runner`` joins them; ``iteration`` yields updates to a loop; ``testing`` drives them without a network; ``models``
makes objects of rows. It imports ``wormhole`` and nothing else of ours.
"""

from importlib import import_module
from typing import TYPE_CHECKING

import wormhole  # noqa: F401 - first, because it reports a Python that is too old
from subscriber_sdk.backfill import Key, KeyRange, ScanEnd
from subscriber_sdk.iteration import transactions, updates
from subscriber_sdk.options import SubscriberOptions
from subscriber_sdk.retry import RetryPolicy
from subscriber_sdk.router import Router
from subscriber_sdk.runner import Running, run, serve
from subscriber_sdk.subscriber import (
    AckLater,
    DataLoss,
    FlowHalted,
    LossDecision,
    NoticeKind,
    SchemaChange,
    ShardNotice,
    Subscriber,
)
from wormhole.model.errors import (
    EpochRefused,
    HandlerFailed,
    ModelMismatch,
    TransactionRolledBack,
    UsageError,
    WormholeError,
)
from wormhole.model.loss import LossKind
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.values import UNAVAILABLE, Op, Unavailable, Value
from wormhole.wire.markers import marker_from_bytes, marker_to_bytes
from wormhole.wire.update import Transaction, Update

if TYPE_CHECKING:
    from subscriber_sdk.arrow import BatchInfo
    from subscriber_sdk.models import decode
    from wormhole.config import TlsFiles

__all__ = [
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


# pydantic takes 0.15 s to import, which most subscribers need only when these are used, and pyarrow is an extra.
_ON_FIRST_USE = {"BatchInfo": "subscriber_sdk.arrow", "TlsFiles": "wormhole.config", "decode": "subscriber_sdk.models"}


def __getattr__(name: str) -> object:
    if name in _ON_FIRST_USE:
        return getattr(import_module(_ON_FIRST_USE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
