"""Checks the user's Spark settings that our jobs depend on.

A setting that would make a result wrong, or push twice, is refused. A setting that costs time or attempts is reported.
Unset memory settings of containers are filled in. :data:`RULES` is the whole list, which docs/cluster.md repeats.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from wormhole.model.errors import UsageError

__all__ = ["RULES", "TASK_MIB", "Rule", "check_settings", "filled_in"]

TASK_MIB: Final = 280
"""The most memory that a task that pushes uses outside the JVM (docs/replay.md, "Sizing")."""
_ADDRESSES_MIB: Final = 1024  # Arrow and gRPC's threads reserve most of it without using it
_OVERHEAD_MIB: Final = 384  # Spark's own minimum, for the JVM
_BYTES: Final = re.compile(r"(\d+)([bkmgt]?)b?", re.IGNORECASE)
_MIB: Final = {"b": 1 / (1 << 20), "k": 1 / 1024, "m": 1, "g": 1024, "t": 1 << 20}


@dataclass(frozen=True, slots=True)
class Rule:
    """``bad``: whether a value of ``name`` is bad, given all settings. ``why``: what happens then. ``wanted``: the
    value to set. ``refused``: the job does not begin; otherwise the setting is only reported. ``pushing``: the rule is
    for replays only.
    """

    name: str
    bad: Callable[[str, Mapping[str, str]], bool]
    why: str
    wanted: str
    refused: bool = False
    pushing: bool = False


def _on(value: str, _: Mapping[str, str]) -> bool:
    return value.strip().lower() == "true"


def _off(value: str, _: Mapping[str, str]) -> bool:
    return value.strip().lower() == "false"


def _below(least: int) -> Callable[[str, Mapping[str, str]], bool]:
    return lambda value, _: value.strip().isdigit() and int(value) < least


def _kills_idle(value: str, given: Mapping[str, str]) -> bool:
    return _on(value, given) and given.get("spark.python.worker.idleTimeoutSeconds", "0") != "0"


def _few_addresses(value: str, given: Mapping[str, str]) -> bool:
    found = _mib(value)
    return found is not None and found / _cores(given) < _ADDRESSES_MIB


def _little_overhead(value: str, given: Mapping[str, str]) -> bool:
    found = _mib(value)
    return "spark.executor.pyspark.memory" not in given and found is not None and found < _overhead(given)


RULES: Final = (
    Rule("spark.remote", lambda *_: True, "Spark Connect runs no jobs of this kind", "(unset)", refused=True),
    Rule(
        "spark.api.mode",
        lambda value, _: value.strip().lower() == "connect",
        "Spark Connect runs no jobs of this kind",
        "classic",
        refused=True,
    ),
    Rule(
        "spark.speculation",
        _on,
        "Spark would start a second copy of a task that pushes, which takes the flow from the first",
        "false",
        refused=True,
        pushing=True,
    ),
    Rule(
        "spark.sql.execution.arrow.useLargeVarTypes",
        _on,
        "tasks that read tables receive Arrow types that they do not support",
        "false",
        refused=True,
    ),
    Rule(
        "spark.task.maxFailures",
        _below(2),
        "the first executor that is lost ends the replay of its flow",
        "4",
        pushing=True,
    ),
    Rule(
        "spark.task.cpus",
        lambda value, _: value.strip().isdigit() and int(value) > 1,
        "a task needs one processor, so the others are idle",
        "1",
        pushing=True,
    ),
    Rule(
        "spark.scheduler.mode",
        lambda value, _: value.strip().upper() == "FIFO",
        "a flow that is folded before it is pushed takes all executors from the others",
        "FAIR",
        pushing=True,
    ),
    Rule("spark.python.worker.reuse", _off, "each task starts Python and imports Arrow anew, some 2 s", "true"),
    Rule("spark.python.use.daemon", _off, "each task starts Python and imports Arrow anew, some 2 s", "true"),
    Rule(
        "spark.python.worker.killOnIdleTimeout",
        _kills_idle,
        "Spark ends a task that waits for its subscriber, because it sends Spark nothing meanwhile",
        "false",
        pushing=True,
    ),
    Rule(
        "spark.excludeOnFailure.enabled",
        _on,
        "executors are not used any more after attempts that failed because a subscriber was away",
        "false",
        pushing=True,
    ),
    Rule(
        "spark.executor.pyspark.memory",
        _few_addresses,
        f"a task has less than {_ADDRESSES_MIB} MiB of address space, most of which Arrow and gRPC reserve, "
        "and ends with a MemoryError",
        f"{_ADDRESSES_MIB}m for each core",
    ),
    Rule(
        "spark.executor.memoryOverhead",
        _little_overhead,
        f"the cluster ends executors that need more: {_OVERHEAD_MIB} MiB, and {TASK_MIB} MiB for each core",
        f"{_OVERHEAD_MIB} + {TASK_MIB} MiB for each core",
    ),
)
"""Each setting occurs at most once."""


def check_settings(given: Mapping[str, str], *, pushing: bool) -> Iterator[str]:
    """A sentence for each setting that is reported. ``given``: all settings, from any source.

    Raises :class:`~wormhole.model.errors.UsageError` with all refused settings.
    """
    found = [
        rule for rule in RULES
        if rule.name in given and (pushing or not rule.pushing) and rule.bad(given[rule.name], given)
    ]  # fmt: skip
    if refused := [rule for rule in found if rule.refused]:
        named = "; ".join(f"{rule.name} is {given[rule.name]}: {rule.why}" for rule in refused)
        wanted = " ".join(f"--conf {rule.name}={rule.wanted}" for rule in refused)
        raise UsageError(
            f"this job does not run with Spark's settings: {named}",
            hint=f"spark-submit {wanted}, or change spark-defaults.conf; nothing was changed",
            code="spark-unavailable",
        )
    return (f"{rule.name} is {given[rule.name]}: {rule.why}. Better: {rule.wanted}" for rule in found)


def filled_in(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """The memory of executors in containers, unless the user set it: enough for one Python worker per task."""
    chosen = ("spark.executor.memoryOverhead", "spark.executor.memoryOverheadFactor", "spark.executor.pyspark.memory")
    if not (master == "yarn" or master.startswith("k8s://")) or any(name in given for name in chosen):
        return {}
    return {"spark.executor.memoryOverhead": f"{_overhead(given)}m"}


def _overhead(given: Mapping[str, str]) -> int:
    return _OVERHEAD_MIB + TASK_MIB * _cores(given)


def _cores(given: Mapping[str, str]) -> int:
    said = given.get("spark.executor.cores", "1")
    return max(1, int(said)) if said.isdigit() else 1


def _mib(value: str) -> float | None:
    """The MiB of a memory size as Spark writes it. A number without a unit is MiB."""
    found = _BYTES.fullmatch(value.strip())
    return int(found[1]) * _MIB[found[2].lower() or "m"] if found else None
