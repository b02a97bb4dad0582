"""The conformance kit: our own client passes, and each fault of a broken one is found by the cases that are for it."""

from __future__ import annotations

import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from google.protobuf.message import Message

from conformance.__main__ import Outcome, main, run
from conformance.catalogue import CASES, cases, expanded
from conformance.lines import AnyOrder, agrees
from scripts.prepare import ROOT
from wormhole.wire.v1 import push_pb2, update_pb2

OURS = f"{shlex.quote(sys.executable)} -m conformance.clients.python"
DECLARED = ROOT / "conformance" / "clients" / "python.toml"
EACH_FEATURE = [
    "basics/*", "transactions/over-batches", "values/decimal", "values/operations", "grammar/hole-in-numbers",
    "bodies/ends-fall", "bounds/credit", "versions/dials-again", "admission/refused", "admission/tls*",
    "admission/token*", "epochs/taken-over", "ending/stop-waits", "have/move-is-known",
    "credit/returned-when-processed", "parts/interleaved", "retry/once", "retry/gives-up", "park/after-the-attempts",
    "notices/replay", "loss/continue", "backfill/rows", "recorded/*", "retry/crash",
    "counts/windows", "reports/updates", "verify/compare",
]  # fmt: skip


def kinds(message: type[Message]) -> set[str]:
    return {field.name for field in message.DESCRIPTOR.oneofs_by_name["kind"].fields}


def broken(fault: str) -> str:
    return f"{shlex.quote(sys.executable)} -m tests.support.broken_client {fault}"


async def test_our_client_passes_cases_of_each_feature() -> None:
    outcome = await run(OURS, tomllib.loads(DECLARED.read_text()), EACH_FEATURE)
    assert not outcome.failed
    assert {case["feature"] for case in cases() if case["name"] in outcome.found} == {c["feature"] for c in cases()}


async def test_a_fault_is_found_by_its_case_and_no_other() -> None:
    chosen = ["basics/several", "values/decimal", "values/double", "values/int"]
    outcome = await run(broken("decimals_as_floats"), {}, chosen, patience=1.0)
    assert [*outcome.failed] == ["values/decimal"]
    assert "decimal" in outcome.failed["values/decimal"]


@pytest.mark.parametrize(
    ("program", "wrong"),
    [
        ("print('hello', flush=True); input(); input()", "no event"),
        ("input()", "did not dial"),
        ('print(\'{"event": "update"}\', flush=True); input(); input()', "not assigned"),
    ],
)
async def test_a_client_that_is_none(program: str, wrong: str) -> None:
    command = shlex.join([sys.executable, "-c", program])
    outcome = await run(command, {}, ["basics/insert"], patience=0.3, start=2.0)
    assert wrong in outcome.failed["basics/insert"]


def test_known_failures_are_no_failures_and_are_reported_when_they_pass() -> None:
    outcome = Outcome({"a/x": "wrong", "a/y": "", "b/z": "worse"}, known=frozenset({"a/x", "a/y"}))
    assert [*outcome.failed] == ["b/z"]
    assert outcome.passed_after_all == ["a/y"]


def test_a_client_that_passes_a_known_failure_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    declared = tmp_path / "client.toml"
    declared.write_text('features = ["basics"]\nknown_failures = ["basics/ins*"]\n')
    assert main(["--client", OURS, "--declares", str(declared), "basics/*"]) == 1
    assert "PASSED basics/insert" in capfd.readouterr().out


def test_every_frame_of_the_publisher_is_in_a_case() -> None:
    text = "".join(path.read_text() for path in CASES.glob("*.toml"))
    unnamed = {kind for kind in kinds(push_pb2.PublisherFrame) if f"{{ {kind} = " not in text}
    assert unnamed <= {"schema", "hello"}  # `welcomed` and `batch` send them
    assert {kind for kind in kinds(update_pb2.Value) if f"{kind} = " not in text} <= {"text", "double", "bool"}


def test_names_of_cases_are_unique_and_features_are_listed() -> None:
    names = [case["name"] for case in cases()]
    assert len(names) == len(set(names))
    page = (ROOT / "docs" / "conformance.md").read_text()
    assert {case["feature"] for case in cases()} == set(tomllib.loads(DECLARED.read_text())["features"])
    assert all(f"`{case['feature']}`" in page for case in cases())


def test_copies_are_written_out() -> None:
    assert expanded({"a": {"copies": ["x", 3]}, "b": [{"copies": [[1], 2]}]}) == {"a": "xxx", "b": [[1, 1]]}


@pytest.mark.parametrize(
    ("value", "printed", "same"),
    [
        ({"uint": 2**64 - 1}, {"type": "int", "value": "18446744073709551615"}, True),
        ({"int": 2**53 + 1}, {"type": "int", "value": "9007199254740992"}, False),
        ({"double": -0.0}, {"type": "double", "value": "0"}, False),
        ({"double": 1e21}, {"type": "double", "value": "1e+21"}, True),
        ({"double": float("nan")}, {"type": "double", "value": "NaN"}, True),
        ({"decimal": "1.50"}, {"type": "decimal", "value": "1.5"}, False),
        ({"decimal": "NaN"}, {"type": "text", "value": "NaN"}, True),
        ({"bytes": b"\xff"}, {"type": "bytes", "value": "/w=="}, True),
        ({"bytes": b"a"}, {"type": "text", "value": "a"}, False),
        ({"null": True}, {"type": "unavailable"}, False),
        ({}, {"type": "unavailable"}, True),
        ({"bool": True}, {"type": "bool", "value": True}, False),
    ],
)
def test_values_are_exact(value: dict[str, object], printed: object, same: bool) -> None:
    assert agrees(update_pb2.Value(**value), printed) is same  # type: ignore[arg-type]


def test_lists_in_any_order_have_each_element_as_often() -> None:
    one, two = update_pb2.Value(int=1), update_pb2.Value(int=2)
    printed = [{"type": "int", "value": "2"}, {"type": "int", "value": "1"}]
    assert agrees(AnyOrder([one, two]), printed)
    assert not agrees([one, two], printed)
    assert not agrees(AnyOrder([one, one]), printed)
