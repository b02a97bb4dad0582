"""``wormholectl archive compact``: small files merged by Spark, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wormhole.config import parse_size
from wormhole.model.errors import UsageError
from wormholectl.archiving import archived
from wormholectl.guard import BROKEN, lazily
from wormholectl.output import print_json, print_table, print_text, say_waiting, size
from wormholectl.render import SCHEMA

if TYPE_CHECKING:
    from spark_replay.archive.compact import Group, Merged

__all__ = ["compact"]

_PLANNED = ("SHARD", "FILES", "SIZE")
_DONE = ("SHARD", "FILES", "BEFORE", "AFTER", "")


def compact(
    coordinator: str,
    dataset: str,
    archives: Sequence[str],
    shards: Sequence[str],
    target: str,
    master: str,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Merge small files of ``shards``, all when empty, into ones of about ``target``. Returns the exit code: 1 when a group failed.

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    module = lazily("spark_replay.archive.compact", "spark")
    sessions = lazily("spark_replay.spark.session", "spark")
    target_bytes = _bytes(target) if target else module.TARGET_BYTES
    if not dry_run:
        sessions.check_spark()
    chosen = archived(coordinator, dataset, archives)
    store = lazily("spark_replay.archive.store", "spark").store_of(chosen.config, chosen.name)
    groups: list[Group] = module.planned(store, shards, target_bytes)
    about = {"schema": SCHEMA, "dataset": store.dataset, "copy": store.copy, "to": store.to, "dry_run": dry_run}
    if dry_run:
        found = [{"shard": one.shard, "files": len(one.files), "bytes_before": one.bytes} for one in groups]
        rows = [(one.shard, f"{len(one.files):,}", size(one.bytes)) for one in groups]
        _told(as_json, {**about, "groups": found}, _PLANNED, rows)
        return 0
    # Without anything to do there is no reason to wait for Spark.
    if groups:
        say_waiting("starting Spark")
    done: list[Merged] = (
        module.compact(sessions.spark_session("wormhole archive compact", master or None), store, groups)
        if groups
        else []
    )
    _told(as_json, {**about, "groups": [_object(one) for one in done]}, _DONE, [_row(one) for one in done])
    return BROKEN if any(one.state == "failed" for one in done) else 0


def _bytes(text: str) -> int:
    try:
        found = parse_size(text)
    except ValueError as error:
        raise UsageError(f"--target {text}: {error}", hint="for example --target 128MiB") from None
    if found <= 0:
        raise UsageError(f"--target {text}: nothing fits into that", hint="for example --target 128MiB")
    return found


def _told(as_json: bool, given: dict[str, Any], columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if as_json:
        print_json(given)
        return
    print_table(columns, rows, "nothing to merge: no small files adjoin")
    if given["dry_run"]:
        print_text("nothing was changed (--dry-run)")
    elif rows:
        print_text("the merged files stay until `wormholectl archive expire` has seen them unnamed for a day")


def _row(one: Merged) -> Sequence[str]:
    if one.state == "failed":
        text = one.problem + (f"; next: {one.hint}" if one.hint else "")
    else:
        text = "" if one.state == "merged" else "left alone: another writer was first"
    return (one.shard, f"{one.files:,}", size(one.before), size(one.after) if one.after else "-", text)


def _object(one: Merged) -> dict[str, Any]:
    found: dict[str, Any] = {"shard": one.shard, "files": one.files, "bytes_before": one.before, "state": one.state}
    if one.state == "merged":
        found["bytes_after"] = one.after
    if one.problem:
        found |= {"problem": one.problem, "next": one.hint}
    return found
