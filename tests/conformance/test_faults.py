"""Each fault of a broken client fails exactly the cases that are for it."""

from __future__ import annotations

import asyncio
import tomllib
from fnmatch import fnmatch

import pytest

from conformance.__main__ import run
from conformance.catalogue import cases
from scripts.prepare import ROOT
from tests.conformance.test_kit import DECLARED, EACH_FEATURE, OURS, broken

FAULTS = tomllib.loads((ROOT / "tests" / "conformance" / "faults.toml").read_text())


async def test_our_client_passes_every_case() -> None:
    outcome = await run(OURS, tomllib.loads(DECLARED.read_text()))
    assert outcome.failed == {}
    assert outcome.left_out == 0


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_fails_its_cases_and_no_other(fault: str) -> None:
    """The others are those of the same features, and some of each other feature."""
    features = [f"{name.partition('/')[0]}/*" for name in FAULTS[fault]]
    every = [case["name"] for case in await asyncio.to_thread(cases)]
    near = [name for name in every if any(fnmatch(name, chosen) for chosen in (*features, *EACH_FEATURE))]
    outcome = await run(broken(fault), {}, FAULTS[fault], patience=1.5)
    assert sorted(outcome.failed) == sorted(FAULTS[fault])
    assert (await run(broken(fault), {}, [name for name in near if name not in FAULTS[fault]])).failed == {}
