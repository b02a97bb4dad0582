"""Feed every target, in each form it has, and say what came out.

Every input follows from (seed, target, number) alone, so a failure is repeated by its seed, and its bytes are
printed besides.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from tests.fuzz.target import Target

SLOW = 2.0  # seconds of the processor, whatever else runs; a decoder that needs this long for one small input has trusted a length it should not have  # noqa: E501


@dataclass
class Tally:
    """What the inputs of one target came to in one form."""

    target: str
    form: str
    inputs: int = 0
    values: int = 0
    refused: int = 0
    seconds: float = 0.0


@dataclass
class Failure:
    """An input that gave neither a value nor a documented error, or not the same in both forms."""

    target: str
    form: str
    seed: int
    number: int
    data: bytes
    what: str

    def __str__(self) -> str:
        return (
            f"FAILED {self.target} ({self.form}), seed {self.seed}, input {self.number}: {self.what}\n"
            f"  again: python -m tests.fuzz --target {self.target} --hex {self.data.hex()}"
        )


@dataclass
class _Outcome:
    kind: str
    seen: object = None
    failure: str = ""
    seconds: float = 0.0


def case(target: Target, seed: int, number: int) -> tuple[bytes, bool]:
    """Input ``number`` of ``target``, and whether it is a valid one (every sixteenth is)."""
    rng = random.Random(f"{seed}:{target.name}:{number}")
    data = target.make(rng)
    if number % 16 == 0:
        return data, True
    return target.mutate(rng, data, target.make(rng)), False


def outcome_of(target: Target, module: ModuleType, data: bytes) -> _Outcome:
    """Decode once: a value, a documented error, or what went wrong."""
    started = time.process_time()
    try:
        value = target.decode(module, data)
        seen = target.observe(value) if target.observe else None
    except target.allowed as refusal:
        outcome = _Outcome("refused", type(refusal).__name__)
    except Exception as error:  # whatever else a decoder raises is exactly what is looked for
        what = f"raised {type(error).__name__}: {error}"
        return _Outcome("failed", failure=what, seconds=time.process_time() - started)
    else:
        outcome = _Outcome("value", seen)
    outcome.seconds = time.process_time() - started
    if outcome.seconds > SLOW:
        outcome.failure = f"took {outcome.seconds:.1f} s for {len(data)} bytes"
    return outcome


def fuzz_target(
    target: Target, seed: int, *, until: float | None = None, inputs: int | None = None
) -> tuple[list[Tally], list[Failure]]:
    """Run ``target`` in all its forms, until `time.monotonic` reaches ``until`` or for a number of ``inputs``.

    The forms get the same inputs, and disagreeing is a failure. Stops at the target's fifth failure.
    """
    forms = target.forms()
    tallies = {form: Tally(target.name, form) for form in forms}
    failures: list[Failure] = []
    number = 0
    while len(failures) < 5 and (inputs is None or number < inputs) and (until is None or time.monotonic() < until):
        data, valid = case(target, seed, number)
        outcomes = {form: outcome_of(target, module, data) for form, module in forms.items()}
        for form, outcome in outcomes.items():
            tally = tallies[form]
            tally.inputs += 1
            tally.seconds += outcome.seconds
            tally.values += outcome.kind == "value"
            tally.refused += outcome.kind == "refused"
            what = outcome.failure
            if valid and outcome.kind == "refused":
                what = f"refused a valid input with {outcome.seen}"
            if what:
                failures.append(Failure(target.name, form, seed, number, data, what))
        first, *others = outcomes.values()
        if any((other.kind, other.seen) != (first.kind, first.seen) for other in others):
            said = "; ".join(f"{form}: {outcome.kind} {outcome.seen!r:.200}" for form, outcome in outcomes.items())
            failures.append(Failure(target.name, "both forms", seed, number, data, f"they disagree: {said}"))
        number += 1
    return list(tallies.values()), failures


def table(tallies: Sequence[Tally]) -> str:
    """The tallies as text, one line per decoder and form."""
    width = max([len("decoder"), *(len(tally.target) for tally in tallies)])
    lines = [f"{'decoder':<{width}}  {'form':<11}  {'inputs':>9}  {'values':>9}  {'refused':>9}  {'inputs/s':>9}"]
    for tally in tallies:
        rate = tally.inputs / tally.seconds if tally.seconds else 0.0
        lines.append(
            f"{tally.target:<{width}}  {tally.form:<11}  {tally.inputs:>9,}  {tally.values:>9,}  "
            f"{tally.refused:>9,}  {rate:>9,.0f}"
        )
    return "\n".join(lines)
