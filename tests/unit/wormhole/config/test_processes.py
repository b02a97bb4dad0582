"""What a host's processes are told."""

from __future__ import annotations

import socket

import pytest

from wormhole.config import MonitorConfig, RestartConfig


def test_a_monitor_speaks_for_the_machine_it_is_on() -> None:
    assert MonitorConfig().host_name == socket.gethostname()
    assert MonitorConfig(host="db-7").host_name == "db-7"


def test_restarts_wait_longer_and_longer() -> None:
    with pytest.raises(ValueError, match="longer than longest_wait"):
        RestartConfig(first_wait=3.0, longest_wait=1.0)
