"""What each observer shows of one publisher, in words: the commands, the status page, the probes and ``up``."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pytest

from monitor.health import health
from monitor.state import HostState, LogKey, Phase, PublisherState
from monitor.web.snapshot import snapshot
from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from tests.support.publisher_status import status
from wormhole.admin.admin_service import Answer
from wormhole.config import parse
from wormhole.coordination.port import HostRequest, MonitorInfo
from wormhole.model.problem import Problem
from wormhole.wire.v1 import admin_pb2
from wormholectl.hosts.show import HOSTS
from wormholectl.hosts.status import Host
from wormholectl.run import up

__all__ = ["ALL", "OBSERVERS", "OF_FLOWS", "OF_LOGS", "concerns", "reported", "running", "shown", "unreadable"]

FLOW: Final = "cache/db1"
_NOW: Final = 1_700_000_000.0


def reported(
    fields: Mapping[str, Any] = MappingProxyType({}),
    flow: Mapping[str, Any] | None = MappingProxyType({}),
    others: Iterable[Mapping[str, Any]] = (),
) -> admin_pb2.PublisherStatus:
    """A publisher that serves one live flow, but for ``fields`` and ``flow``; without a flow where that is ``None``.

    ``others``: what is different in each of the other flows.
    """
    found = status("db1")
    del found.flows[1:]
    for name, value in (flow or {}).items():
        _set(found.flows[0], name, value)
    for number, other in enumerate(others, 2):
        found.flows.append(found.flows[0])
        for name, value in {"flow": f"{FLOW[:-1]}{number}", **other}.items():
            _set(found.flows[-1], name, value)
    if flow is None:
        del found.flows[:]
    for name, value in fields.items():
        _set(found, name, value)
    return found


def unreadable(text: str, hint: str) -> dict[str, Any]:
    """What a publisher reports that cannot read its log: the same in each of the fields that are about that."""
    problem = Problem(text, hint)
    told = admin_pb2.Problem(text=text, hint=hint)
    also = admin_pb2.Problem(text=f"application cache is not served as configured: {text}", hint=hint)
    return {
        "warnings": [told, also],
        "problems": [str(problem), str(Problem(also.text, hint))],
        "end_unknown": str(problem),
        "stuck_s": 40.0,
        "log_end": None,
        "caravans": [],
    }


def _set(message: Any, name: str, value: object) -> None:
    message.ClearField(name)
    if value is not None:
        message.MergeFrom(type(message)(**{name: value}))


def _command(*words: str) -> Callable[[admin_pb2.PublisherStatus], str]:
    def shows(seen: admin_pb2.PublisherStatus) -> str:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("COLUMNS", "200")
            patched.setenv("NO_COLOR", "1")
            FakeAdmin([Answer("h:7", seen)]).install(patched)
            _, out, err = run(*words, "-p", "h:7")
        return out + err

    return shows


def _host(seen: admin_pb2.PublisherStatus) -> HostState:
    state = HostState("h", configuration="shop.toml", coordination=seen.coordination)
    key = LogKey("shop", "main", "db1")
    state.publishers[key] = PublisherState(key, Phase.RUNNING, since=_NOW - 60, answered=_NOW - 1, status=seen)
    return state


def _page(seen: admin_pb2.PublisherStatus) -> str:
    found = snapshot(_host(seen), _NOW)
    shown = [found["concerns"], [one.get("condition") for one in found["publishers"]]]
    return json.dumps([*shown, [(one["cause"], one["next"]) for one in found["flows"]]], ensure_ascii=False)


def _up(seen: admin_pb2.PublisherStatus) -> str:
    class Waited:
        state = _host(seen)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(up, "_READY_S", 0.0)
        waiting, step = asyncio.run(up._wait_for_ready(Waited()))  # type: ignore[arg-type]
    return "\n".join([*waiting, step])


OBSERVERS: Final[Mapping[str, Callable[[admin_pb2.PublisherStatus], str]]] = {
    "lag": _command("lag", "cache"),
    "why-lag": _command("why-lag", FLOW),
    "flows": _command("flows"),
    "doctor": _command("doctor"),
    "publishers": _command("publishers"),
    "page": _page,
    "health": lambda seen: "\n".join(health(_host(seen), _NOW).reasons),
    "up": _up,
}
ALL: Final = tuple(OBSERVERS)
OF_LOGS: Final = ("doctor", "publishers", "page", "flows")
OF_FLOWS: Final = ("why-lag", "flows", "doctor", "page")


def shown(observer: str, seen: admin_pb2.PublisherStatus) -> str:
    """What the observer shows, without line breaks and the marks of quoting."""
    return " ".join(OBSERVERS[observer](seen).replace('\\"', '"').split())


def concerns(seen: admin_pb2.PublisherStatus) -> dict[str, int]:
    """How many things that are wrong with flows ``doctor`` lists, and the page."""
    report = json.loads(_command("doctor", "--json")(seen))
    page = snapshot(_host(seen), _NOW)["concerns"]
    return {
        "doctor": sum(1 for one in report["findings"] if one["check"] == "flows" and one["severity"] != "ok"),
        "page": sum(1 for one in page if one["about"] == "flow"),
    }


def running(seen: admin_pb2.PublisherStatus) -> dict[str, int]:
    """How many publishers run: what ``up`` shows, and ``hosts``."""

    class Waited:
        state, page = _host(seen), ""

    config = parse("version = 1\n[coordinator]\nstatic = true\n", "observers")
    text = up._Up(Path("shop.toml"), None, config, up._Report(-1))._how_to_go_on(Waited(), config)  # type: ignore[arg-type]
    phases = {str(key): one.phase.label for key, one in Waited.state.publishers.items()}
    row = HOSTS.row(Host("h", MonitorInfo("h", 1, "", 0.0, phases), HostRequest(False, "", 0.0), ()))
    counts = {"up": re.match(r"(\d+) publishers? running", text), "hosts": re.fullmatch(r"(\d+) running", row[3])}
    return {name: int(found[1]) if found else 0 for name, found in counts.items()}
