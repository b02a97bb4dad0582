"""Shared by the commands about backfills: change several flows, and watch their backfills until they end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from wormhole.admin import admin_service
from wormhole.admin.admin_service import publisher_name
from wormhole.model.errors import UsageError, WormholeError
from wormhole.model.units import parse_rate
from wormhole.wire.backfills import has_ended, refused_tables
from wormholectl.backfill.flows import backfills_of, tables_of, wait_until_ended
from wormholectl.exit_codes import BROKEN
from wormholectl.shared.confirm import confirm
from wormholectl.shared.options import Where, parsed
from wormholectl.show.backfills import (
    ProgressLine,
    ReportedBackfill,
    are_complete,
    show_backfills,
    show_changed,
    show_planned,
)
from wormholectl.show.printer import counted

if TYPE_CHECKING:
    from wormhole.admin import Admin, Change

__all__ = [
    "after_of",
    "await_first_rows",
    "before_and_after",
    "change_each",
    "names_of",
    "notes_of",
    "rate_of",
    "start_each",
    "watch",
]

_START: Final = "start"  # stored as the person of a backfill that `start = "existing"` began


def start_each(
    admin: Admin,
    what: str,
    flows: Sequence[str],
    names: Sequence[str],
    settings: Mapping[str, object],
    *,
    question: str,
    yes: bool,
    as_json: bool,
) -> list[str]:
    """Preview a backfill in each flow, show the previews, ask, and start it. Returns the flows in which it began.

    ``what``: the method of ``admin`` that starts it; ``names``: tables or patterns, empty for all tables. Nothing is
    changed before the question is answered. Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    application = flows[0].partition("/")[0]
    chosen: dict[str, tuple[str, ...]] = dict.fromkeys(flows, ())

    def begin(preview: bool) -> list[Change]:
        each = {flow: {**settings, "tables": of_flow} for flow, of_flow in chosen.items()}
        return change_each(admin, what, each, preview=preview)

    if names:
        # This preview has no filter, because a flow that is not chosen may lack the columns that the filter tests.
        unfiltered = {name: value for name, value in settings.items() if name != "where"}
        listed = change_each(admin, what, dict.fromkeys(flows, unfiltered), preview=True)
        chosen = tables_of(names, [after_of(one) for one in listed])
    planned = begin(True)  # errors are reported before any flow begins
    _check_readable([after_of(one) for one in planned])
    if not yes:
        show_planned(application, [after_of(one) for one in planned], notes_of(planned), as_json)
    confirm(question, yes)
    made = begin(False)
    show_changed(application, "start", before_and_after(made), notes_of(made), made=True, as_json=as_json)
    return list(chosen)


def _check_readable(planned: Sequence[ReportedBackfill]) -> None:
    """Raise :class:`~wormhole.model.errors.UsageError` if no flow has a table whose rows can be read."""
    statuses = [one.status for one in planned if one.status is not None]
    refused = [table for status in statuses for table in refused_tables(status)]
    if refused and len(refused) == sum(len(status.progress) for status in statuses):
        first = refused[0]
        raise UsageError(
            f"the rows of {first.table} cannot be read: {first.refused.text}",
            hint=first.refused.hint,
            code="table-unreadable",
        )


def change_each(
    admin: Admin, what: str, settings: Mapping[str, Mapping[str, object]], *, preview: bool
) -> list[Change]:
    """Change several flows, or preview it. ``settings``: the settings by flow. An error reports how many flows were
    changed before it."""
    done: list[Change] = []
    for flow, of_flow in settings.items():
        try:
            done.append(getattr(admin, what)(flow, preview=preview, **of_flow))
        except WormholeError as error:
            if done and not preview:
                error.message += f" ({flow}; {counted(len(done), 'other flow')} changed before it)"
            raise
    return done


def after_of(change: Change) -> ReportedBackfill:
    """The flow's backfill after the change."""
    status = change.after.backfill if change.after.HasField("backfill") else None
    return ReportedBackfill(publisher_name(change.publisher), change.flow, status)


def before_and_after(changes: Sequence[Change]) -> list[tuple[ReportedBackfill, ReportedBackfill]]:
    """The backfill of each flow before and after its change."""
    found = []
    for change in changes:
        after = after_of(change)
        status = change.before.backfill if change.before.HasField("backfill") else None
        found.append((ReportedBackfill(after.publisher, after.flow, status), after))
    return found


def notes_of(changes: Sequence[Change]) -> list[str]:
    """The notes of the publishers, each note once."""
    return list(dict.fromkeys(note for change in changes for note in change.notes))


def watch(where: Where, application: str, as_json: bool, flows: Collection[str] = ()) -> int:
    """Show the progress until every backfill has ended, for all flows or only for ``flows``.

    Returns the exit code: 1 if a table was not sent completely, or if a verification left a difference.
    """
    progress = ProgressLine(application, as_json=as_json)
    ended = wait_until_ended(lambda: admin_service.ask(where), application, progress.show, flows=flows)
    progress.close()
    show_backfills(ended, (), as_json)
    statuses = [one.status for one in ended if one.status is not None]
    return 0 if len(statuses) == len(ended) and are_complete(statuses) else BROKEN


def await_first_rows(where: Where, application: str, flows: Collection[str], as_json: bool) -> None:
    """Wait until ``flows`` have the existing rows with which the application begins. A comparison must not begin
    earlier."""
    first = [
        one.flow
        for one in backfills_of(admin_service.ask(where), application)
        if one.flow in flows and one.status is not None and one.status.who == _START and not has_ended(one.status)
    ]
    if first:
        progress = ProgressLine(application, as_json=as_json)
        wait_until_ended(lambda: admin_service.ask(where), application, progress.show, flows=first)
        progress.close()


def names_of(tables: Sequence[str] | None) -> tuple[str, ...]:
    """The names in the option ``--tables``, which may be repeated and may contain commas."""
    return tuple(one.strip() for given in tables or () for one in given.split(",") if one.strip())


def rate_of(text: str) -> float | None:
    """The value of the option ``--rate`` in bytes per second; ``None`` if the option is not given."""
    if not text:
        return None
    rate = parsed(parse_rate, "--rate", text, "4MiB/s")
    if not rate:
        raise UsageError("--rate 0: no row would ever be sent", hint="leave out --rate, or `backfill pause`")
    return rate
