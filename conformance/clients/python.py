"""The client process of ``subscriber_sdk`` (docs/conformance.md, "The client process")."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from subscriber_sdk import (
    DataLoss,
    Datamarker,
    FlowHalted,
    KeptMarker,
    Key,
    LossDecision,
    NoticeKind,
    RetryPolicy,
    ShardNotice,
    Subscriber,
    SubscriberOptions,
    Unavailable,
    Update,
    serve,
)
from subscriber_sdk.backfill import KeyRange, ScanEnd
from wormhole.model.errors import WormholeError
from wormhole.model.problem import Problem
from wormhole.model.values import Value
from wormhole.wire.markers import marker_from_bytes, marker_to_bytes

__all__ = ["Case", "main", "shown_value"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXIT: Final = 3
_LONGER: Final = 10  # the longest wait before a repeated call, in multiples of the first wait
_NOTICES: Final = {NoticeKind.REPLAY_BEGIN: "replay_begin", NoticeKind.REPLAY_END: "replay_end"}


class Case(Subscriber):
    """The application of one case. ``say``: prints an event."""

    def __init__(self, case: Mapping[str, Any], say: Callable[..., None]) -> None:
        self._case = case
        self._say = say
        self._script: dict[str, dict[str, Any]] = {name: dict(do) for name, do in case.get("handler", {}).items()}
        self._epochs: dict[str, int] = {}
        self._hanging = asyncio.Event()

    def resume(self) -> None:
        """Let every handler that hangs now return."""
        self._hanging.set()
        self._hanging = asyncio.Event()

    async def on_update(self, update: Update) -> None:
        self._say("update", **shown(update))
        script = self._script.get(update.id, {})
        if script.get("times") == 0:
            return
        if "times" in script:
            script["times"] -= 1
        match script.get("do"):
            case "raise":
                raise RuntimeError("the case asks for a failure")
            case "hang":
                del self._script[update.id]
                await self._hanging.wait()
            case "exit":
                os._exit(_EXIT)

    async def on_shard_notice(self, notice: ShardNotice) -> KeptMarker | Datamarker | None:
        where = {"shard": notice.shard, "epoch": notice.epoch}
        match notice.kind:
            case NoticeKind.ASSIGNED:
                self._epochs[notice.shard] = notice.epoch
                self._say(
                    "assigned",
                    **where,
                    marker=_marker(notice.marker),
                    move=notice.move,
                    rewound=notice.rewound,
                    acknowledged=notice.acknowledged,
                    generation=notice.generation,
                )
                return self._kept(notice.shard)
            case NoticeKind.REVOKED:
                self._say("revoked", **where, marker=_marker(notice.marker))
            case NoticeKind.REPLAY_BEGIN:
                self._say("replay_begin", **where, latest=notice.latest)
            case _:
                self._say("replay_end", **where)
        return None

    def _kept(self, shard: str) -> KeptMarker | Datamarker | None:
        kept = self._case.get("have", {}).get(shard)
        if kept is None:
            return None
        marker = marker_from_bytes(base64.b64decode(kept["marker"]))
        return KeptMarker(marker, kept["move"]) if "move" in kept else marker

    async def on_datamarker(self, marker: Datamarker) -> None:
        self._say("datamarker", **self._where(marker.shard), marker=_marker(marker))

    async def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        self._say("rolled_back", **self._where(to.shard), marker=_marker(to))

    async def on_data_loss(self, loss: DataLoss) -> LossDecision:
        self._say(
            "data_loss",
            **self._where(loss.shard),
            kind=loss.kind.value,
            first_missing=loss.first_missing,
            last_missing=loss.last_missing,
            resume=_marker(loss.resume),
        )
        return LossDecision(self._case["data_loss"])

    async def on_range(self, keys: KeyRange) -> None:
        self._say(
            "chunk_end",
            **self._where(keys.shard),
            table=keys.table,
            after=None if keys.after is None else _values(keys.after),
            until=None if keys.until is None else _values(keys.until),
            **{"except": [*map(_values, keys.except_keys)]},
            alone=[*map(_values, keys.keys)],
            rows=keys.rows,
        )

    async def on_scan_end(self, end: ScanEnd) -> None:
        self._say("scan_end", **self._where(end.shard), table=end.table, generation=end.generation, rows=end.rows)

    async def on_error(self, error: FlowHalted) -> None:
        self._say("error", code="halted", shard=error.shard, epoch=error.epoch, update=error.update_id)

    def _where(self, shard: str) -> dict[str, Any]:
        return {"shard": shard, "epoch": self._epochs[shard]}


class VerifiedCase(Case):
    """The application of a case in which it holds rows that are verified. They never change."""

    def __init__(self, case: Mapping[str, Any], say: Callable[..., None]) -> None:
        super().__init__(case, say)
        self._holds: dict[str, dict[Key, dict[str, Value]]] = {
            table: {
                tuple(map(_read_value, row["key"])): {name: _read_value(v) for name, v in row["columns"].items()}
                for row in rows
            }
            for table, rows in case["holds"].items()
        }

    async def on_verify(self, table: str, shard: str, keys: Sequence[Key]) -> Mapping[Key, Mapping[str, Value]]:
        return {key: self._holds[table][key] for key in keys if key in self._holds[table]}

    async def on_verify_keys(self, table: str, shard: str) -> Iterable[Key]:
        return list(self._holds[table])


def _read_value(printed: Mapping[str, str]) -> int | str:
    return int(printed["value"]) if printed["type"] == "int" else printed["value"]


def shown(update: Update) -> dict[str, Any]:
    """The fields of an update in a printed line."""
    committed = update.committed_at
    return {
        "shard": update.shard,
        "epoch": update.epoch,
        "id": update.id,
        "op": update.op.value,
        "table": update.table,
        "key": _values(update.key),
        "old_key": None if update.old_key is None else _values(update.old_key),
        "key_end": None if update.key_end is None else _values(update.key_end),
        "before": _named(update.before),
        "after": _named(update.after),
        "transaction": update.transaction.id,
        "position": str(update.position),
        "index": update.index,
        "ends_transaction": update.ends_transaction,
        "committed_at_us": 0 if committed is None else (committed - _EPOCH) // timedelta(microseconds=1),
        "replayed": update.replayed,
        "too_large": update.too_large,
        "entered": update.entered,
        "left": update.left,
        "generation": update.generation,
    }


def shown_value(value: Value) -> dict[str, Any]:
    """The form of a value in a printed line."""
    match value:
        case None:
            return {"type": "null"}
        case Unavailable():
            return {"type": "unavailable"}
        case bool():
            return {"type": "bool", "value": str(value).lower()}
        case int():
            return {"type": "int", "value": str(value)}
        case float():
            return {"type": "double", "value": json.dumps(value)}
        case Decimal():
            return {"type": "decimal", "value": str(value)}
        case str():
            return {"type": "text", "value": value}
        case bytes():
            return {"type": "bytes", "value": _base64(value)}
        case _:
            return {"type": "entries", "value": [[_base64(name), _base64(held)] for name, held in value.items()]}


def _values(values: Iterable[Value]) -> list[dict[str, Any]]:
    return [*map(shown_value, values)]


def _named(row: Mapping[str, Value] | None) -> dict[str, Any] | None:
    return None if row is None else {name: shown_value(value) for name, value in row.items()}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _marker(marker: Datamarker | None) -> str | None:
    return None if marker is None else _base64(marker_to_bytes(marker))


def _options(case: Mapping[str, Any]) -> SubscriberOptions:
    wait = case["first_wait_ms"] / 1000
    options: SubscriberOptions = {
        "id": case["id"],
        "dial": [case["dial"], *([case["second"]] if "second" in case else [])],
        "retry": RetryPolicy(case["max_attempts"], wait, _LONGER * wait),
        "credit": case["credit"],
        "max_frame": case["max_frame"],
        "max_update": case["max_body"] // 2,
    }
    if "tls" in case:
        tls = case["tls"]
        files = [tls[name] for name in ("cert", "key", "ca") if name in tls]
        options["tls"] = ",".join(files)
        options["publishers"] = [tls["publisher"]]
    if "token" in case:
        options["token"] = case["token"]
    return options


class _Refusals(logging.Handler):
    """Prints an error for each refusal that the subscriber logs."""

    def __init__(self, say: Callable[..., None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        for given in record.args if isinstance(record.args, tuple) else ():
            if isinstance(given, (WormholeError, Problem)) and record.levelno == logging.WARNING:
                self._say("error", code=given.code)


async def main() -> None:
    """Serve cases until the end of standard input."""
    lines: asyncio.StreamReader = asyncio.StreamReader(limit=1 << 26)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)

    def say(event: str, **fields: Any) -> None:
        sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
        sys.stdout.flush()

    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    logging.getLogger("subscriber_sdk").addHandler(_Refusals(say))
    while line := await lines.readline():
        given = json.loads(line)
        case, stopped = (VerifiedCase if "holds" in given else Case)(given, say), asyncio.Event()
        listening = asyncio.create_task(_listen(lines, case, stopped))
        async with serve(case, application=given["application"], **_options(given)):
            await stopped.wait()
        listening.cancel()
        await asyncio.wait({listening})
        say("end")


async def _listen(lines: asyncio.StreamReader, case: Case, stopped: asyncio.Event) -> None:
    """Do what the runner requests during a case, also while the subscriber stops."""
    while line := await lines.readline():
        if "resume" in json.loads(line):
            case.resume()
        else:
            stopped.set()
    stopped.set()


if __name__ == "__main__":
    asyncio.run(main())
