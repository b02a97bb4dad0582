from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from tests.support.eventually import PATIENCE_S
from tests.support.publisher_status import status
from wormhole.admin.admin_service import Answer
from wormhole.admin.discovery import Drained
from wormhole.wire.v1 import admin_pb2
from wormholectl.lag.top import LastAnswers, draw

TOLD = [Answer("h:7", status("db1"))]
ROOT = Path(__file__).parents[4]


def screen(seen: LastAnswers, now: float, height: int = 40, width: int = 160) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(draw(seen, now, height, width))
    return capture.get()


def test_the_latest_flow_comes_first() -> None:
    seen = LastAnswers()
    seen.learn(TOLD, 10.0)
    lines = screen(seen, 10.5).splitlines()
    assert lines[0].startswith("shop/main/db1  h:7  0.1.0  up 2.5s  connected  1 caravan  2 flows  log at 1/2/30")
    assert "caravan 1 (lead) at 1/2/30" in lines[1]
    flows = [line.split()[0] for line in lines if "/db1" in line][1:]
    assert flows == ["cache/db1", "mail/db1"]
    assert "control: the log is purged" in next(line for line in lines if line.startswith("mail/db1"))
    assert lines[-1] == "q ends"


def test_a_publisher_shows_its_term_or_for_whom_it_stands_by() -> None:
    owner = status("db1")
    owner.term = 4
    other = status("db2")
    other.standby.text = "stands by: main@alpha owns the log"
    seen = LastAnswers()
    seen.learn([Answer("h:7", owner), Answer("h:8", other)], 10.0)
    lines = screen(seen, 10.5, width=200).splitlines()
    assert "  term 4" in next(line for line in lines if line.startswith("shop/main/db1"))
    assert "stands by: main@alpha owns the log" in next(line for line in lines if line.startswith("shop/main/db2"))


def test_a_backfill_is_shown_where_nothing_else_is() -> None:
    idle = status("db1")
    flow = idle.flows[0]
    flow.ClearField("lag_transactions")
    flow.lag_s = flow.lag_bytes = 0
    flow.backfill.MergeFrom(admin_pb2.BackfillStatus(state="running", rows=1_200, share=0.25))
    seen = LastAnswers()
    seen.learn([Answer("h:7", idle)], 10.0)
    assert "backfill running 25%, 1,200 rows sent" in screen(seen, 10.5)


def test_which_flow_it_is_can_be_read_in_a_narrow_terminal() -> None:
    seen = LastAnswers()
    seen.learn(TOLD, 10.0)
    for flow in TOLD[0].status.flows if TOLD[0].status is not None else ():
        assert f"\n{flow.flow} " in screen(seen, 10.5, width=60)


def test_no_width_of_the_terminal_cuts_a_figure() -> None:
    many = status("db1")
    many.flows[0].updates = 1_202_001_234
    seen = LastAnswers()
    seen.learn([Answer("h:7", many)], 10.0)
    for width in range(60, 160):
        row = next(line for line in screen(seen, 10.5, width=width).splitlines() if line.startswith("cache/db1"))
        assert "1m 15s / 20 B / 1,500 tx" in row
        if "1,2" in row:
            assert "1,202,001,234" in row
        if " of " in row:
            assert "1.0 MiB of 4.0 MiB" in row
    assert "1,202,001,234" in row


def test_what_went_away_is_shown_with_its_last_status() -> None:
    seen = LastAnswers()
    assert "asking" in screen(seen, 0.0)
    seen.learn(TOLD, 10.0)
    seen.failed("no publisher is registered", 21.0)
    shown = screen(seen, 22.0)
    assert "does not answer; status of 12s ago" in shown
    assert "no publisher is registered" in shown
    assert "cache/db1" in shown
    seen.learn([*TOLD, Answer("h:9", None, "h:9 is silent")], 30.0)
    shown = screen(seen, 30.0)
    assert "status of" not in shown
    assert "h:9 is silent" in shown


def test_a_drained_host_is_shown_and_nobody_is_looked_for() -> None:
    drained = Drained("db-7", "ann", ("shop/main/db2",), frozenset())
    seen = LastAnswers()
    seen.learn([*TOLD, Answer("", None, str(drained), drained=drained)], 10.0)
    assert str(drained) in screen(seen, 10.5)
    assert seen.problems == ()


def test_a_publisher_that_comes_back_at_another_address_is_the_same_one() -> None:
    seen = LastAnswers()
    seen.learn(TOLD, 10.0)
    seen.learn([Answer("h:8", status("db1"))], 11.0)
    shown = screen(seen, 11.0)
    assert shown.count("shop/main/db1") == 1
    assert shown.count("cache/db1") == 1
    assert "h:8" in shown


def test_a_low_screen_hides_who_is_less_behind() -> None:
    many = status("db1")
    for shard in range(20):
        many.flows.add(flow=f"cache/t{shard}", lag_s=100 + shard, state="live")
    seen = LastAnswers()
    seen.learn([Answer("h:7", many)], 0.0)
    shown = screen(seen, 0.0, height=15)
    assert "cache/t19" in shown
    assert "cache/t3 " not in shown
    assert "more flows that are less behind" in shown


def test_in_a_terminal_a_key_ends_it_whether_or_not_anybody_answers() -> None:
    """A real terminal: a publisher that is not there is said, `q` ends, and the terminal is as it was."""
    leader, follower = pty.openpty()
    program = "from wormholectl import main; main()"
    child = subprocess.Popen(
        [sys.executable, "-c", program, "top", "-p", "127.0.0.1:1"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "100", "LINES": "30", "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(follower)
    try:
        shown = b""
        while b"does not answer" not in shown:
            shown += os.read(leader, 4096)
        os.write(leader, b"q")
        while child.poll() is None:
            try:
                shown += os.read(leader, 4096)
            except OSError:  # the other end is closed
                break
        assert child.wait(PATIENCE_S) == 0
        assert b"Traceback" not in shown
        assert b"\x1b[?1049l" in shown  # back from the alternate screen
    finally:
        child.kill()
        child.wait()
        os.close(leader)
