"""Ports for what has to be told one before it listens."""

from __future__ import annotations

import atexit
import itertools
import os
import socket
from collections import deque

# Below the ports that the kernel gives to whoever asks for any (from 32768 on, on Linux): nobody is given one of ours
# between the question and the listening, and two questions never get the same answer. The workers of one run have
# neighbouring process ids: each begins far from the others.
_FIRST, _COUNT = 20_000, 12_000
_numbers = itertools.count(os.getpid() * 4801)
_claims: deque[socket.socket] = deque()
_MOST_CLAIMS = 200  # file descriptors: by then the process that got the first one listens, or has ended


def free_port() -> int:
    """A port of loopback at which nobody listens, another one each time."""
    for number in itertools.islice(_numbers, _COUNT):
        port = _FIRST + number % _COUNT
        # Another run of the tests has the same ports: a name that one process at a time can have claims a port.
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0wormhole-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        if len(_claims) > _MOST_CLAIMS:
            _claims.popleft().close()
        return port
    raise AssertionError("every port is taken")


@atexit.register
def _give_up_claims() -> None:
    for claim in _claims:
        claim.close()
