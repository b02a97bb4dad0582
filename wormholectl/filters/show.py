"""Prints a filter and its effect on a log, as text or as a JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from wormhole.filters import Filter, explain
from wormhole.filters.capabilities import needs_of
from wormhole.filters.tree import Expr, leaves, write
from wormholectl.filters.effect import Effect, TableEffect
from wormholectl.show.columns import FIGURE, ShownColumn, ShownTable
from wormholectl.show.printer import print_text, size

__all__ = ["effect_object", "show_effect"]


def _tests(normal: Expr) -> list[tuple[str, str]]:
    """The distinct tests of a filter, each with the data that it needs."""
    return [(write(leaf), needs_of(leaf)) for leaf in dict.fromkeys(leaves(normal))]


def _saved(one: TableEffect) -> str:
    saved = one.bytes - one.sent_bytes
    return f"{size(saved)} ({100 * saved / one.bytes:.0f}%)" if one.bytes else f"{size(saved)} (-)"


TABLES: Final = ShownTable[TableEffect](
    ShownColumn("TABLE", "table", lambda one: one.table),
    ShownColumn("UPDATES", "updates", lambda one: one.updates, FIGURE),
    ShownColumn("KEPT", "kept", lambda one: one.kept, FIGURE),
    ShownColumn("KEY ONLY", "key_only", lambda one: one.key_only, FIGURE),
    ShownColumn("DROPPED", "dropped", lambda one: one.updates - one.kept, FIGURE),
    ShownColumn("BYTES", "bytes", lambda one: one.bytes, size),
    ShownColumn("SENT", "sent_bytes", lambda one: one.sent_bytes, size),
    ShownColumn("SAVED", None, _saved),
    ShownColumn("BAD VALUES", "bad_values", lambda one: one.bad_values, FIGURE),
)


def effect_object(wanted: Filter, found: Effect | None, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """The parsed filter, its effect and warnings about it, as a JSON object."""
    return {
        "filter": wanted.text,
        "normal": explain(wanted),
        "hash": wanted.hash,
        "tests": [{"test": test, "needs": needs} for test, needs in _tests(wanted.normal)],
        "columns": list(wanted.projection.columns),
        "mask": dict(wanted.projection.mask),
        "warnings": list(warnings),
        "log": None
        if found is None
        else {
            "updates": found.updates,
            "from": None if found.begin is None else str(found.begin),
            "to": None if found.end is None else str(found.end),
            "tables": TABLES.objects(found.tables),
        },
    }


def show_effect(wanted: Filter, found: Effect | None) -> None:
    """Print the parsed filter and a table of its effect."""
    print_text(f"read as  {explain(wanted)}")
    print_text(f"hash     {wanted.hash}")
    tests = _tests(wanted.normal)
    width = max((len(test) for test, _ in tests), default=0)
    for test, needs in tests:
        print_text(f"  {test.ljust(width)}  needs {needs}")
    if wanted.projection.columns:
        print_text(f"columns  {', '.join(wanted.projection.columns)}, and keys")
    if wanted.projection.mask:
        print_text(f"mask     {', '.join(f'{name} = {how}' for name, how in wanted.projection.mask.items())}")
    if wanted.formats and any(needs == "the value" for _, needs in tests):
        print_text(
            "the log has no row before a change: an update that does not pass now comes with its key only, marked left"
        )
    if found is None:
        return
    if not found.updates:
        print_text("the log holds no updates")
        return
    print_text(f"the last {found.updates:,} updates, {found.begin} to {found.end}:")
    everything = TableEffect("all")
    for one in found.tables:
        for name in ("updates", "kept", "key_only", "bytes", "sent_bytes", "bad_values"):
            setattr(everything, name, getattr(everything, name) + getattr(one, name))
    TABLES.show((*found.tables, *((everything,) if len(found.tables) > 1 else ())), "")
