"""A failover is removed from the configuration and configured again, each time with a restart of the publishers: the
datamarkers that another group stored are continued.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.system.harness.candidates import Candidates, Host
from tests.system.harness.copies import MAIN
from tests.system.test_failover import TWO_COPIES, finish, move
from tests.system.test_failover_refused import Say, serving, started
from wormhole.config import load
from wormhole.coordination.connect import publish_config

_FAILOVER = re.compile(r"\[datasets\.shop\.failover\]\n(?:\w+ = .*\n)+")


def by_copy(ensemble: Candidates) -> tuple[Host, Host]:
    """The publisher of main, and that of west."""
    first, second = ensemble.hosts.values()
    return (first, second) if first.copy == MAIN else (second, first)


class Configurations:
    """The files of each host, with the failover and without."""

    def __init__(self, ensemble: Candidates, folder: Path) -> None:
        self._ensemble = ensemble
        self._files = {path: path.read_text() for path in folder.glob("*.toml")}

    def apply(self, *, failover: bool) -> None:
        """As an operator does it; publishers that run go on with what they have."""
        for path, text in self._files.items():
            apart = _FAILOVER.sub("", text).replace('dataset = "shop"\n', 'dataset = "shop"\ncopy = "main"\n')
            path.write_text(text if failover else apart)
        asyncio.run(publish_config(load(self._ensemble.config)))
        self._ensemble._several = failover


@pytest.mark.soak
def test_a_failover_that_is_removed_and_configured_again(tmp_path: Path, say: Say) -> None:
    with started(tmp_path, TWO_COPIES) as ensemble:
        serving(ensemble)
        main, west = by_copy(ensemble)
        for host in (main, west, main, west):
            if ensemble.owner is not host:
                move(ensemble, host)
                ensemble.await_all_of(10)
        configurations = Configurations(ensemble, tmp_path)
        for _ in range(2):
            configurations.apply(failover=False)
            ensemble.restart(main)
            main.publisher.await_output("still serves shop/@failover/db1, as configured before")
            ensemble.restart(west)
            ensemble.await_owner(main)
            ensemble.await_all_of(30)

            configurations.apply(failover=True)
            ensemble.restart(west)
            west.publisher.await_output("still serves shop/main/db1, as configured before")
            ensemble.restart(main)
            ensemble.await_true(lambda: ensemble.owner is not None, ensemble.owners)
            ensemble.await_all_of(30)
            if ensemble.owner is main:
                move(ensemble, west)
                ensemble.await_all_of(10)
        finish(ensemble, say)
