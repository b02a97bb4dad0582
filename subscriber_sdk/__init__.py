"""What an application installs to receive updates.

The path of one update through this package::

    server    push_server     the gRPC service that the publisher dials; bytes only
              connection      one stream joined to the flows that it feeds   (epoch_records; publishers: its log lines)
    stream    session         pure: frames in, events out; answers in, frames out     (flow: one epoch of it; outbox)
    work      shards          which epoch of which shard is at work in this process
              flow_worker     one epoch of a flow at work     (acks, schemas: pure; parallel, keyorder; tracing)
              recovery        one callback failed: another try, a rollback, parking, or a halt
              parking         stores an update in place of its callback
              backfill_calls  reports the ends of ranges and tables of existing rows
    verify    verifying       compares rows in place of their delivery     (comparing, findings: pure; source_keys)
    calls     handlers        which callbacks the application overrides, and which of them run in a thread
              callbacks       runs callbacks within their time limit     (epoch: their shared state; watchdog, meter)
              gate, retry     pure: whether a callback is called, and called again     (failure_report: its log lines)
    options                   the settings of a subscriber, and the check of publishers that want to push to it

Applications use the modules ``subscriber``, ``router``, ``models``, ``arrow`` and ``backfill``. ``runner`` starts a
subscriber from the parts above, ``running`` represents it, and ``metrics`` lists its metrics. ``iteration`` yields
updates to a loop. ``testing`` drives flows without a network. The only other package of this project that
``subscriber_sdk`` imports is ``wormhole``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

import wormhole  # noqa: F401 - first, because it reports a Python that is too old
from subscriber_sdk.backfill import Key, KeyRange, ScanEnd
from subscriber_sdk.iteration import transactions, updates
from subscriber_sdk.options.subscriber_options import RetryPolicy, SubscriberOptions
from subscriber_sdk.router import Router
from subscriber_sdk.runner import Running, run, serve
from subscriber_sdk.subscriber import (
    AckLater,
    DataLoss,
    FlowHalted,
    KeptMarker,
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
    "KeptMarker",
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


# Importing pydantic takes 0.15 s, and most subscribers do not use these names. pyarrow is an extra.
_ON_FIRST_USE = {"BatchInfo": "subscriber_sdk.arrow", "TlsFiles": "wormhole.config", "decode": "subscriber_sdk.models"}


def __getattr__(name: str) -> object:
    if name in _ON_FIRST_USE:
        return getattr(import_module(_ON_FIRST_USE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
