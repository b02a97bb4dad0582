"""A free port: nobody's now, and nobody else's next."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import chain, count

import pytest

from tests.support import ports
from tests.support.ports import free_port


def test_no_two_questions_get_the_same_answer_although_nobody_listens_yet() -> None:
    found = [free_port() for _ in range(200)]
    assert len(set(found)) == 200


def test_it_is_none_that_the_kernel_gives_to_others() -> None:
    assert all(20_000 <= free_port() < 32_768 for _ in range(200))


def test_one_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    first = free_port() - 20_000  # a test run claims ports of its own: other runs claim others
    numbers: Iterator[int] = chain([first + 1, first + 1], count(first + 2))
    monkeypatch.setattr(ports, "_numbers", numbers)
    taken = free_port()
    with socket.create_server(("127.0.0.1", taken)):
        assert free_port() > taken
