"""Text of peers that would steer a terminal or forge a line: every way by which it is shown, and all that comes out is
searched.

Rows, names and error texts come from databases, subscribers, ZooKeeper and archives; :data:`HOSTILE` stands in each of
their fields.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import sys
import threading
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from rich.console import Console

from monitor.state import HostEvent, HostState, LogKey, Phase, PublisherState
from monitor.web.snapshot import snapshot
from spark_replay.commands.show_replay import Teller
from subscriber_sdk.testing import update
from tests.support.eventually import eventually
from tests.support.fake_admin import FakeAdmin
from tests.support.letters import parcel_of
from tests.support.publisher_status import status
from wormhole.admin import admin_service
from wormhole.admin.admin_service import Answer
from wormhole.config import parse
from wormhole.coordination.records import flow_from_json, history_from_json, subscriber_from_json
from wormhole.host import logs
from wormhole.model.errors import ConfigError, Fatal, WormholeError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.ports.dead_letters import open_parcel
from wormhole.wire.update import Update
from wormhole.wire.v1 import admin_pb2
from wormholectl.app import app
from wormholectl.lag import top
from wormholectl.run import live_log
from wormholectl.shared import errors, options
from wormholectl.show import printer
from wormholectl.tail import show as updates

_FORGED = "2026-01-01 00:00:00 [error    ] all is lost"
HOSTILE = (
    "x\x1b]0;owned\x07\x1b]8;;http://evil\x1b\\\x1b[2J\x9b31m\x90q\x9c\x08\x7f\u202e\u2066\u200b\ufeff\u2028\xad\U000e0041"
    f"\r\n{_FORGED}\r{_FORGED}"
)
# What rich and we ourselves write to a terminal: colours, and for `top` its screen.
_OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?(?:1049|25)[hl]|\x1b\[H|\r\x1b\[K")


class _Output(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def _search(shown: str, *, ours: bool = False) -> None:
    """Fails for every character that controls or hides, and for a line that seems to be one of a log."""
    assert "owned" in shown, f"nothing of it is shown: {shown[:300]!r}"
    left = _OURS.sub("", shown) if ours else shown
    found = {each for each in left if unicodedata.category(each) in {"Cc", "Cf", "Zl", "Zp", "Cs"}} - {"\n", "\t"}
    assert not found, f"{found} in {left[:2000]!r}"
    assert not [line for line in left.splitlines() if line.startswith(_FORGED[:10]) and "owned" not in line]


def _fill(message: Message) -> Message:
    """Every text of it is hostile."""
    for field in message.DESCRIPTOR.fields:
        value: Any = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        if field.message_type is not None:
            for one in value if field.is_repeated else [value] * message.HasField(field.name):
                _fill(one)
        elif field.type == field.TYPE_STRING:
            if field.is_repeated:
                del value[:]
                value.append(HOSTILE)
            else:
                setattr(message, field.name, value + HOSTILE)
    return message


def _status() -> admin_pb2.PublisherStatus:
    told = status("db1")
    for flow in told.flows:
        flow.handler.slowest_table = "users"
        flow.handler.running_update = "1/2/3:0"
    _fill(told)
    return told


class _Admin(FakeAdmin):
    def dead_letters(self, answer: Answer, flow: str, limit: int) -> admin_pb2.DeadLettersReply:
        reply = super().dead_letters(answer, flow, limit)
        _fill(reply)
        return reply

    def change(self, answer: Answer, request: admin_pb2.ChangeRequest) -> admin_pb2.ChangeReply:
        assert answer.status is not None
        reply = admin_pb2.ChangeReply(before=answer.status.flows[0], after=answer.status.flows[0], notes=[HOSTILE])
        reply.after.paused = HOSTILE
        return reply


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (errors.DEBUG, "WORMHOLE_COORDINATOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm-256color")
    printer._console.cache_clear()
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    yield
    root.handlers, root.level = before[0], before[1]
    printer._console.cache_clear()


def _run(*arguments: str, terminal: bool) -> str:
    """All that a command prints, on both of its outputs."""
    shown = _Output(terminal=terminal)
    with redirect_stdout(shown), redirect_stderr(shown), pytest.raises(SystemExit):
        app(list(arguments))
    return shown.getvalue()


_FLOW = "cache/db1" + HOSTILE
_COMMANDS = [
    ("flows",),
    ("flows", "--json"),
    ("flows", "pause", _FLOW, "--yes"),
    ("flows", "pause", _FLOW, "--yes", "--json"),
    ("flows", "pause", HOSTILE, "--yes"),
    ("flows", "skip", _FLOW, "--update", HOSTILE, "--yes"),
    ("flows", "accept-loss", _FLOW, "--yes"),
    ("markers", "show", _FLOW),
    ("markers", "show", _FLOW, "--json"),
    ("markers",),
    ("markers", "--json"),
    ("publishers",),
    ("publishers", "--json"),
    ("shards",),
    ("shards", "--json"),
    ("caravans",),
    ("caravans", "--json"),
    ("subscribers",),
    ("subscribers", "--json"),
    ("lag", "cache"),
    ("lag", "cache", "--json"),
    ("lag", HOSTILE, "--max", HOSTILE),
    ("lag", HOSTILE),
    ("why-lag", _FLOW),
    ("why-lag", _FLOW, "--json"),
    ("flows", "dead-letters", "list", _FLOW),
    ("flows", "dead-letters", "list", _FLOW, "--json"),
    ("flows", "dead-letters", "retry", _FLOW, "--key", HOSTILE, "--yes"),
    ("filters", "explain", HOSTILE),
    ("config", "check", HOSTILE),
    ("tail", f"mysql://{HOSTILE}@h/"),
    (HOSTILE,),
]


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
@pytest.mark.parametrize(
    "command", _COMMANDS, ids=lambda command: " ".join(command)[:30].encode("unicode_escape").decode()
)
def test_commands_show_what_publishers_report(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], terminal: bool
) -> None:
    answers = [Answer("h:7", _status()), Answer("h:8" + HOSTILE, None, HOSTILE)]
    _Admin(answers=answers).install(monkeypatch)
    monkeypatch.setattr(admin_service, "find", lambda _where: answers)
    connected = [] if command[0] in {"filters", "config", "tail", HOSTILE} else ["--publisher", "h:7"]
    _search(_run(*command, *connected, terminal=terminal), ours=terminal)


def _update() -> Update:
    table, key, name = "shop." + HOSTILE, "id" + HOSTILE, "name" + HOSTILE
    return open_parcel(parcel_of(update(table, key={key: HOSTILE}, after={name: HOSTILE.encode(), "n": HOSTILE})))


def test_a_row_as_json_is_the_row() -> None:
    shown = _Output(terminal=False)
    with redirect_stdout(shown):
        printer.print_json(updates.update_as_json(_update(), HOSTILE))
    _search(shown.getvalue())
    assert json.loads(shown.getvalue())["after"]["name" + HOSTILE] == HOSTILE


_LISTED: list[Callable[[], None]] = [
    lambda: printer.print_table(["FLOW", "CAUSE"], [[HOSTILE, HOSTILE]], ""),
    lambda: printer.print_table(["FLOW", "CAUSE"], [[HOSTILE, "y" * 300]], ""),
    lambda: printer.print_table(["FLOW"], [], HOSTILE),
    lambda: printer.print_text(HOSTILE),
    lambda: printer.print_text(HOSTILE, error=True),
    lambda: printer.print_json({HOSTILE: [HOSTILE]}),
    lambda: printer.print_line([(HOSTILE, "bold red")]),
    lambda: printer.print_line(updates.update_as_line(_update())),
    lambda: printer.print_text(str(Datamarker(LogPosition(1, 2, 3), HOSTILE, LogPosition(1, 2, 3))), HOSTILE),
    lambda: Teller("r", as_json=False).says(HOSTILE),
]


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
@pytest.mark.parametrize("show", _LISTED)
def test_what_commands_print_with(show: Callable[[], None], terminal: bool) -> None:
    shown = _Output(terminal=terminal)
    with redirect_stdout(shown), redirect_stderr(shown):
        show()
    _search(shown.getvalue(), ours=terminal)


def test_progress() -> None:
    shown = _Output(terminal=True)
    with redirect_stderr(shown):
        printer.print_progress(HOSTILE)
    _search(shown.getvalue(), ours=True)


def test_top() -> None:
    seen = top.LastAnswers()
    seen.learn([Answer("h:7" + HOSTILE, _status()), Answer("h", None, HOSTILE)], 1.0)
    console = Console(file=_Output(terminal=True), force_terminal=True, width=4000, highlight=False)
    console.print(top.draw(seen, 2.0, 50, console.width))
    _search(console.file.getvalue(), ours=True)  # type: ignore[attr-defined]


@pytest.mark.parametrize("debug", ["", "1"])
@pytest.mark.parametrize("error", [Fatal(HOSTILE, hint=HOSTILE), ValueError(HOSTILE), OSError(5, HOSTILE, HOSTILE)])
def test_errors_of_commands(monkeypatch: pytest.MonkeyPatch, error: Exception, debug: str) -> None:
    if debug:
        monkeypatch.setenv(errors.DEBUG, debug)

    def fails(*_: object) -> list[Answer]:
        raise error

    monkeypatch.setattr(admin_service, "ask", fails)
    monkeypatch.setattr(admin_service, "ask_each", fails)
    _search(_run("flows", "--publisher", "h:7", terminal=True), ours=True)


_RECORDS: dict[str, Callable[[logging.Logger], None]] = {
    "message": lambda log: log.error("refused: %s", HOSTILE),
    "fields": lambda log: log.error("owned", extra={"flow": HOSTILE, "subscriber": HOSTILE}),
    "exception": lambda log: _logged(log, ValueError(HOSTILE)),
    "cause": lambda log: _logged(log, WormholeError(HOSTILE, hint=HOSTILE, flow=HOSTILE)),
    "name": lambda log: logging.getLogger(HOSTILE).error("owned"),
    "warning": lambda log: warnings.warn(HOSTILE, stacklevel=1),
    "stack": lambda log: log.error(HOSTILE, stack_info=True),
    "thread": lambda log: _in_thread(),
}


def _logged(log: logging.Logger, error: Exception) -> None:
    try:
        raise error
    except Exception:
        log.exception("it failed: %s", error)


def _in_thread() -> None:
    def fails() -> None:
        raise ValueError(HOSTILE)

    thread = threading.Thread(target=fails)
    thread.start()
    thread.join()


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("record", _RECORDS)
@pytest.mark.filterwarnings("always")
def test_logs(monkeypatch: pytest.MonkeyPatch, record: str, form: str, terminal: bool) -> None:
    for module, name in ((threading, "excepthook"), (sys, "excepthook")):
        monkeypatch.setattr(module, name, getattr(module, name))
    shown = _Output(terminal=terminal)
    with redirect_stderr(shown):
        logs.configure(json=form == "json")
        _RECORDS[record](logging.getLogger("publisher"))
        logging.captureWarnings(capture=False)
    _search(shown.getvalue(), ours=terminal)
    if form == "json":
        [line] = shown.getvalue().splitlines()
        assert json.loads(line)["level"]


async def test_logs_of_publishers_that_up_shows(tmp_path: Path) -> None:
    shown = _Output(terminal=True)
    (tmp_path / "db.log").touch()
    log = live_log.LiveLog(tmp_path, "monitor", shown)
    log.setFormatter(logging.Formatter("%(message)s"))
    task = asyncio.create_task(log.run())
    log.emit(logging.LogRecord("x", logging.ERROR, "x", 1, HOSTILE, (), None))
    await eventually(lambda: "monitor | " in shown.getvalue(), "it shows what was logged")
    (tmp_path / "db.log").write_text(HOSTILE + "\n", newline="")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    text = shown.getvalue()
    assert "db      | " in _OURS.sub("", text)
    _search(text, ours=True)
    assert all(" | " in line for line in text.splitlines()), "every line says whose it is"


def test_a_shell_is_offered_no_name_that_it_would_read_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    told = status("db1")
    flows = ["app/$(evil)", "app/`evil`", "app/a b", "app/a\nb", "app/;x", "app/a'", _FLOW, "app/db1.shop.users"]
    for name in flows:
        told.flows.add(flow=name)
    FakeAdmin(answers=[Answer("h:7", told)]).install(monkeypatch)

    class _Context:
        params: dict[str, str] = {}  # noqa: RUF012
        parent = None

    assert options.flow_names(_Context(), "app") == ["app/db1.shop.users"]


def test_the_status_page_is_given_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page itself puts texts into text nodes; its policy forbids the browser to make markup of any."""
    state = HostState("db-7", configuration=HOSTILE)
    key = LogKey("shop", "main", "db")
    state.publishers[key] = PublisherState(key, Phase.RUNNING, problem=HOSTILE, status=_status())
    state.add(HostEvent(1.0, "crashed", HOSTILE, HOSTILE))
    text = json.dumps(snapshot(state, 2.0))
    assert text.isascii()
    script = (Path(__file__).parents[2] / "monitor/web/assets").glob("*.js")
    assert not [
        each
        for each in script
        if re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", each.read_text())
    ]


_CONFIGURED: dict[str, Callable[[str], object]] = {
    "toml": lambda text: parse(f"version = 1\n[{json.dumps(text)}]\nx = 1\n", "x.toml"),
    "value": lambda text: parse(f"version = 1\n[coordinator]\nzookeeper = {json.dumps(text)}\n", "x.toml"),
    "subscriber": lambda text: subscriber_from_json("a", "s", json.dumps({"address": [text]}).encode(), f"/{text}"),
    "flow": lambda text: flow_from_json(json.dumps({"owner": [text]}).encode(), f"/{text}"),
    "history": lambda text: history_from_json(text.encode(), f"/{text}"),
}


@pytest.mark.parametrize("read", _CONFIGURED)
def test_errors_about_what_others_wrote(read: str) -> None:
    with pytest.raises(ConfigError) as told:
        _CONFIGURED[read](HOSTILE.replace("\x7f", "").replace("\U000e0041", ""))
    _search(errors.message(told.value))
