"""Ports for what has to be told one before it listens."""

from __future__ import annotations

import itertools
import os
import socket

# Below the ports that the kernel gives to whoever asks for any (from 32768 on, on Linux): nobody is given one of ours
# between the question and the listening, and two questions never get the same answer. The workers of one run have
# neighbouring process ids: each begins far from the others.
_FIRST, _COUNT = 20_000, 12_000
_numbers = itertools.count(os.getpid() * 4801)


def free_port() -> int:
    """A port of loopback at which nobody listens, another one each time."""
    for number in itertools.islice(_numbers, _COUNT):
        port = _FIRST + number % _COUNT
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("every port is taken")
