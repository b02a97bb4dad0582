"""``wormholectl top``: shows publishers, caravans and flows on a screen that is refreshed every second.

A separate thread queries the publishers, so that a key takes effect immediately. A publisher that does not answer is
shown with its last status.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from wormhole.admin import admin_service
from wormhole.admin.admin_service import Answer, publisher_name
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.errors import UsageError, WormholeError
from wormhole.model.visible import visible
from wormhole.wire.backfills import backfill_text
from wormhole.wire.lag import lag_of
from wormhole.wire.v1 import admin_pb2
from wormholectl.lag.why import LagStage, diagnose
from wormholectl.shared.options import Where
from wormholectl.show.flows import lag_text
from wormholectl.show.places import Status, shown_place
from wormholectl.show.printer import counted, size, span

__all__ = ["LastAnswers", "draw", "watch"]

_LOOK_S: Final = 0.2
_FIND_S: Final = 15.0
_LATE_S: Final = 10.0
_AROUND: Final = 8
"""The least number of lines that do not show flows."""
_LEFT_OUT_FIRST: Final = ("IN FLIGHT", "UPDATES", "SUBSCRIBER", "STATE")
_LEAST_REST: Final = 10
_GAP: Final = 1
"""Columns between two cells."""


@dataclass(slots=True)
class LastAnswers:
    """The last answer of each publisher, by name, with its monotonic time, and the problems of the last round.

    ``asked_at``: the time of the last round. A publisher whose answer is older is away. ``drained``: a sentence for
    each drained host.
    """

    publishers: dict[str, tuple[Answer, float]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    asked_at: float | None = None

    def learn(self, answers: Sequence[Answer], now: float) -> None:
        """Store the answers of one round."""
        for answer in answers:
            if answer.status is not None:
                self.publishers[publisher_name(answer.status)] = (answer, now)
        self.problems = tuple(answer.problem for answer in answers if answer.silent)
        self.drained = tuple(str(answer.drained) for answer in answers if answer.drained is not None)
        self.asked_at = now

    def failed(self, problem: str, now: float) -> None:
        """Note a round in which no publisher was found."""
        self.problems, self.asked_at = (problem,), now


def draw(seen: LastAnswers, now: float, height: int, width: int) -> RenderableType:
    """The screen at ``now``: publishers, then as many flows as fit into ``height`` lines, the flow furthest behind
    first. A column of figures that does not fit into ``width`` is omitted, because a figure is never cut.
    """
    parts: list[RenderableType] = []
    flows: list[tuple[admin_pb2.FlowStatus, admin_pb2.PublisherStatus]] = []
    for name, (answer, answered_at) in sorted(seen.publishers.items()):
        status = answer.status
        assert status is not None
        away = f"  does not answer; status of {span(now - answered_at)} ago" if answered_at != seen.asked_at else ""
        parts.append(
            Text.assemble(
                _text(name, "bold"),
                _text(f"  {answer.address}  {status.version}  up {span(status.uptime_s)}  {status.coordination}"),
                f"  {counted(len(status.caravans), 'caravan')}  {counted(len(status.flows), 'flow')}",
                f"  log at {shown_place(status, status.log_end)}" if status.HasField("log_end") else "",
                f", grows {size(status.log_bytes_per_s)}/s" if status.HasField("log_bytes_per_s") else "",
                f"  term {status.term}" if status.term else "",
                _text(f"  {status.standby.text}" if status.HasField("standby") else "", "yellow"),
                (away, "bold red"),
            )
        )
        parts += [_text(_caravan(status, caravan), "dim") for caravan in status.caravans]
        flows += [(flow, status) for flow in status.flows]
    parts += [_text(host, "yellow") for host in seen.drained]
    parts += [_text(problem, "bold red") for problem in seen.problems]
    if seen.asked_at is None:
        parts.append(Text("asking ..."))
    flows.sort(key=lambda pair: pair[0].flow)
    flows.sort(key=lambda pair: lag_of(pair[1], pair[0]).order, reverse=True)
    room = max(height - len(parts) - _AROUND, 3)
    rows: list[tuple[str, dict[str, str]]] = []
    for flow, status in flows[:room]:
        found = diagnose(status, flow)
        waits = backfill_text(flow) if found.stage is LagStage.NONE else f"{found.stage.value}: {found.what}"
        style = (
            "red" if flow.state in {"held", "needs_replay"} or flow.paused else "yellow" if flow.lag_s > _LATE_S else ""
        )
        cells = {
            "FLOW": flow.flow,
            "STATE": flow.state,
            "LAG": lag_text(lag_of(status, flow)),
            "SUBSCRIBER": flow.subscriber or "-",
            "IN FLIGHT": f"{size(flow.in_flight)} of {size(flow.in_flight + flow.credit)}",
            "UPDATES": f"{flow.updates:,}",
            "WAITS FOR": waits,
        }
        rows.append((style, cells))
    hidden = len(flows) - room
    rest = f"{hidden} more flows that are less behind; " if hidden > 0 else ""
    return Group(*parts, Text(), _table(rows, width), Text(f"\n{rest}q ends", "dim"))


def _table(rows: Sequence[tuple[str, Mapping[str, str]]], width: int) -> Table:
    """A table. ``rows``: for each row a style, and the cells by column. The last column gets the rest of the width."""
    columns = {name: max(len(name), *(len(cells[name]) for _, cells in rows)) for name in rows[0][1]} if rows else {}
    last = list(columns)[-1:]
    columns.update(dict.fromkeys(last, _LEAST_REST))
    for name in _LEFT_OUT_FIRST:
        if sum(columns.values()) + _GAP * (len(columns) - 1) > width:
            columns.pop(name, None)
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for name, widest in columns.items():
        table.add_column(
            name,
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if name == "UPDATES" else "left",
            ratio=1 if name in last else None,
            min_width=widest,
        )
    for style, cells in rows:
        table.add_row(*(_text(cells[name]) for name in columns), style=style)
    return table


def _text(text: str, style: str = "") -> Text:
    """A text that may come from a peer, with its control characters escaped."""
    return Text(visible(text), style)


def _caravan(status: Status, caravan: admin_pb2.CaravanStatus) -> str:
    return (
        f"  caravan {caravan.number}{' (lead)' if caravan.lead else ''} at {shown_place(status, caravan.place)}, "
        f"{size(caravan.bytes_per_s)}/s, {counted(len(caravan.flows), 'flow')}, {size(caravan.buffered_bytes)} buffered"
    )


def watch(where: Where, every_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
    """Draw until ``q`` or Ctrl-C.

    Raises :class:`~wormhole.model.errors.UsageError` without a terminal or for a wrong address.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("top needs a terminal", hint="`wormholectl flows --json` is for programs")
    seen, stopping = LastAnswers(), threading.Event()
    wrong: list[UsageError] = []

    def ask() -> None:
        known: list[Answer] = []
        found = 0.0
        while not stopping.is_set():
            now = clock.monotonic()
            try:
                # The coordinator is queried only when a publisher is gone, because it may be back at another address.
                if not known or seen.problems or now - found > _FIND_S:
                    known, found = admin_service.find(where), now
                seen.learn(admin_service.ask_again(known), clock.monotonic())
            except UsageError as error:
                wrong.append(error)
                return
            except WormholeError as error:
                seen.failed(error.message, clock.monotonic())
            stopping.wait(every_s)

    asking = threading.Thread(target=ask, name="top-asks", daemon=True)
    console = Console(highlight=False)
    with (
        suppress(KeyboardInterrupt),
        _keys() as pressed,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        asking.start()
        try:
            while not wrong:
                live.update(draw(seen, clock.monotonic(), console.height, console.width), refresh=True)
                if pressed(_LOOK_S) in {"q", "Q", "\x1b"}:
                    break
        finally:
            stopping.set()
    if wrong:
        raise wrong[0]


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Read single keys from the terminal. Yields a function that waits for a key for the given seconds; its result is
    empty if no key came."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        return os.read(descriptor, 1).decode(errors="replace") if ready else ""

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
