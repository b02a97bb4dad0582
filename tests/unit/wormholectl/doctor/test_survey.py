from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support.fake_admin import FakeAdmin
from tests.support.publisher_status import status
from tests.unit.wormhole.admin.test_discovery import static
from wormhole.admin.admin_service import Answer
from wormhole.model.errors import UsageError
from wormholectl.doctor.survey import clock_of, look
from wormholectl.shared.options import Where


class Page(BaseHTTPRequestHandler):
    """A health page whose clock is `ahead` seconds before ours."""

    ahead = 0.0

    def do_GET(self) -> None:
        self.send_response_only(200)
        self.send_header("Date", formatdate(time.time() + Page.ahead, usegmt=True))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


@pytest.fixture
def page() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=lambda: server.serve_forever(0.02), daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def answer(address: str) -> Answer:
    told = status("db1")
    told.http_address = address
    return Answer("h:7", told)


@pytest.mark.parametrize("ahead", [0.0, 100.0, -100.0])
def test_a_clock_is_asked(ahead: float, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Page, "ahead", ahead)
    clock = clock_of(answer(page))
    assert (clock.name, clock.problem) == ("db-host", "")
    assert clock.ahead_s is not None
    assert abs(clock.ahead_s - ahead) <= 1.5


def test_a_clock_that_cannot_be_asked() -> None:
    clock = clock_of(answer("127.0.0.1:1"))
    assert clock.ahead_s is None
    assert "refused" in clock.problem


def test_one_publisher(page: str, admin: FakeAdmin, tmp_path: Path) -> None:
    admin.answers = [answer(page)]
    assert admin.answers[0].status is not None
    admin.answers[0].status.token_file = "/a/place/of/its/choice"
    admin.answers = [Answer("127.0.0.1:7", admin.answers[0].status)]
    seen = look(Where("127.0.0.1:7", folder=tmp_path))
    assert (seen.subject, seen.problem, seen.hosts, seen.logs) == ("127.0.0.1:7", "", (), ())
    assert [clock.name for clock in seen.clocks] == ["db-host"]
    assert [disk.path for disk in seen.disks] == [str(tmp_path)]
    assert seen.disks[0].free > 0


def test_a_static_installation_of_which_nothing_runs(tmp_path: Path) -> None:
    where = static(tmp_path, "127.0.0.1:0")
    (tmp_path / "state").mkdir()
    seen = look(where)
    assert (seen.problem, seen.answers, seen.logs) == ("", (), ("shop/main/db1",))
    assert [disk.path for disk in seen.disks] == [str(tmp_path / "state")]


def test_nothing_says_where_to_look() -> None:
    with pytest.raises(UsageError, match=r"-c FILE\.toml"):
        look(Where())
