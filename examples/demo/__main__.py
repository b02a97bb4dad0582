"""The command line of the demo, and the verdict at its end."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from examples.demo.checker import Checker, Verdict, percentile
from examples.demo.datastore import KINDS, open_datastore
from examples.demo.director import SLOW, Facts, play
from examples.demo.scene import LOG, SHARDS, SUBSCRIBERS, Record
from examples.demo.story import Story, table
from wormhole.model.errors import UsageError, WormholeError

_EXAMPLES = """\
examples:
  make demo                                     the whole story, about half a minute
  make demo DATASTORE=mysql                     the same on a private MariaDB
  make demo DATASTORE=postgres                  the same on a private PostgreSQL
  make demo ARGS="--seed 7 --seconds 40"        other data, other moments, longer
  make demo ARGS=--json                         the last line is JSON for a program
  make demo ARGS="--inject lose-one"            the checker must notice one lost update: exit status 1
  make demo ARGS=--keep                         keep journals, logs and the store, and say where
  python -m examples.demo --check FOLDER        check once more what was kept

docs/demo.md explains how it counts; every word is in docs/glossary.md.
"""
_LEAST_SECONDS = 5.0


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make demo",
        description="A live store, a publisher and three subscribers; two kill -9; then what arrived is counted.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--datastore", choices=list(KINDS), default="rocksdb", help="what is written to (rocksdb)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="what is written, and what is killed when (1)")
    parser.add_argument("--seconds", type=float, default=15.0, metavar="N", help="how long the writer writes (15)")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--inject", choices=["lose-one"], help="drop one received update in the checker")
    parser.add_argument("--keep", action="store_true", help="keep the folder with journals, logs and store")
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="only check a run that was kept")
    arguments = parser.parse_args(given)
    if arguments.seconds < _LEAST_SECONDS:
        parser.error(f"--seconds {arguments.seconds:g}: at least {_LEAST_SECONDS:g} are needed for the story")
    return arguments


def _verdicts(folder: Path, facts: Facts, inject: bool) -> list[Verdict]:
    record = Record(folder)
    record.read()
    content = open_datastore(facts.datastore, folder).content()
    checker = Checker(record.commits, LOG, SHARDS, content, facts.disturbed)
    drop = random.Random(f"inject {facts.seed}").choice(record.commits).serial if inject and record.commits else None
    applications = sorted(set(SUBSCRIBERS.values()))
    return [
        checker.check(name, record.of(name), drop if number == 0 else None) for number, name in enumerate(applications)
    ]


def _report(story: Story, verdicts: Sequence[Verdict], facts: Facts, as_json: bool) -> int:
    story.end("")
    story.show(table(verdicts, frozenset({SLOW})))
    story.end("ms: from when a write was due to the callback; p50 and p99 outside the recoveries from the two kills")
    for verdict in verdicts:
        for commit in verdict.lost[:3]:
            what = "delete" if commit.digest == "-" else "put"
            story.end(f"LOST: {verdict.application} never received the {what} of {commit.table} {commit.key} "
                      f"(update {commit.serial} of the writer)")  # fmt: skip
        for violation in verdict.violations[:3]:
            story.end(f"ORDER VIOLATION: {verdict.application}: {violation}")
        for name, key in [] if verdict.lost else verdict.differs[:3]:
            story.end(f"DIFFERS: {verdict.application}: {name} {key} is not what the store holds")
    good = all(verdict.good for verdict in verdicts)
    if good:
        story.end("Nothing lost, nothing out of order, and every application ends with exactly what the store holds.")
    if as_json:
        steady = [v for v in verdicts if v.application != SLOW]
        print(
            json.dumps(
                {
                    "updates": verdicts[0].updates,
                    "duplicates": sum(verdict.duplicates for verdict in verdicts),
                    "lost": sum(len(verdict.lost) for verdict in verdicts),
                    "order_violations": sum(len(verdict.violations) for verdict in verdicts),
                    "differs": sum(len(verdict.differs) for verdict in verdicts),
                    "kills": facts.kills,
                    "caravans_max": facts.caravans_max,
                    "p99_ms": round(max(percentile(v.steady, 0.99) for v in steady), 2),
                    "p99_all_ms": round(max(percentile(v.latencies, 0.99) for v in steady), 2),
                    "seed": facts.seed,
                }
            ),
            flush=True,
        )
    return int(not good)


async def _play(arguments: argparse.Namespace, story: Story) -> int:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    async with play(arguments.datastore, arguments.seed, arguments.seconds, arguments.keep, story) as (folder, facts):
        verdicts = await asyncio.to_thread(_verdicts, folder, facts, arguments.inject == "lose-one")
        return _report(story, verdicts, facts, arguments.json)


def _check(arguments: argparse.Namespace, story: Story) -> int:
    try:
        facts = Facts.read(arguments.check)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"--check {arguments.check}: holds no finished run of the demo ({error})",
            hint="name the folder that `make demo ARGS=--keep` printed",
        ) from None
    return _report(story, _verdicts(arguments.check, facts, arguments.inject == "lose-one"), facts, arguments.json)


def main(given: Sequence[str]) -> int:
    """Run the demo; the exit status is 1 when anything was lost, out of order, or did not happen."""
    arguments = _arguments(given)
    story = Story()
    try:
        if arguments.check is not None:
            return _check(arguments, story)
        return asyncio.run(_play(arguments, story))
    except WormholeError as error:
        print(f"make demo: {error}", file=sys.stderr)
        return 1
    except (asyncio.CancelledError, KeyboardInterrupt):
        print("make demo: stopped; every process of it has ended", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
