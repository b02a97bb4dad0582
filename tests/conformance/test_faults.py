"""Each fault of a broken client fails exactly the cases of the whole kit that are for it."""

from __future__ import annotations

import asyncio
import shlex
import sys
import tomllib

import pytest

from conformance.__main__ import run
from conformance.catalogue import cases
from scripts.prepare import ROOT

DECLARED = ROOT / "conformance" / "clients" / "python.toml"
FAULTS = tomllib.loads((ROOT / "tests" / "conformance" / "faults.toml").read_text())


async def test_our_client_passes_every_case() -> None:
    outcome = await run(
        f"{shlex.quote(sys.executable)} -m conformance.clients.python", tomllib.loads(DECLARED.read_text())
    )
    assert outcome.failed == {}
    assert outcome.left_out == 0


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_fails_its_cases_and_no_other(fault: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m tests.support.broken_client {fault}"
    every = await asyncio.to_thread(cases)
    others = [case["name"] for case in every if case["name"] not in FAULTS[fault]]
    outcome = await run(command, {}, FAULTS[fault], patience=1.5)
    assert sorted(outcome.failed) == sorted(FAULTS[fault])
    assert (await run(command, {}, others)).failed == {}
