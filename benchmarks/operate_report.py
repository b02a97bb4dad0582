"""The tables of :mod:`benchmarks.operate`."""

from __future__ import annotations

import importlib.util
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks import operate
from benchmarks.operate import MODULES, Imported, Log, Rest, Start
from wormhole.model.errors import ConfigError
from wormholectl.show.printer import print_table, print_text

__all__ = ["mariadb_log", "operate_report"]

_START_S: Final = 0.9
_HELP_S: Final = 0.15
_SDK_S: Final = 0.25
_RESIDENT_MB: Final = 50.0
_CPU_PERCENT: Final = 1.0


@contextmanager
def mariadb_log(folder: Path) -> Iterator[Log]:
    """A private MariaDB with one small table."""
    from examples.demo.mariadb import MariaDbServer

    with ExitStack() as stack:
        server = stack.enter_context(MariaDbServer())
        server.sql("CREATE DATABASE bench", "CREATE TABLE bench.kv (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY)")
        insert = "INSERT INTO bench.kv VALUES ()"
        server.sql(insert)
        yield Log(f'source = "{server.url}"\npassword_file = "{server.password_file}"', lambda: server.sql(insert))


def operate_report(runs: int, *, quick: bool) -> dict[str, Any]:
    """What ``make bench CASE=operate`` prints; the figures again for JSON."""
    print_text("  what imports alone take ...", flush=True)
    # An installed package has its bytecode; a checkout's is written by the first import of each module.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    operate.imported(" ".join(MODULES.values()))
    limits = {name: [operate.imported(modules) for _ in range(runs)] for name, modules in MODULES.items()}
    found: dict[str, list[Start]] = {}
    for name, log in _logs():
        print_text(f"  starts of a publisher of {name} ...", flush=True)
        found[name] = operate.starts(log, runs)
    print_text("  ten publishers at rest ...", flush=True)
    rest = operate.at_rest(10, 5.0 if quick else 60.0)
    print_text("  wormholectl ...", flush=True)
    command, shown = operate.command_seconds(runs), operate.help_seconds(runs)
    _print_times(found, command, shown, limits)
    _print_rests(rest, limits)
    return {
        "imports": {name: [asdict(one) for one in ones] for name, ones in limits.items()},
        "starts": {name: [asdict(one) for one in ones] for name, ones in found.items()},
        "at_rest": {name: asdict(one) for name, one in rest.items()},
        "flows_s": command,
        "help_s": shown,
    }


def _logs() -> Iterator[tuple[str, Callable[[Path], Any]]]:
    yield "RocksDB", operate.rocksdb_log
    if importlib.util.find_spec("pymysql") is not None and _has_mariadb():
        yield "MariaDB", mariadb_log


def _has_mariadb() -> bool:
    from examples.demo.mariadb import MariaDbServer

    try:
        return bool(MariaDbServer().program("dump"))
    except ConfigError:
        return False


def _print_times(
    starts: dict[str, list[Start]], command: Sequence[float], help_s: Sequence[float], limits: dict[str, list[Imported]]
) -> None:
    title = "Seconds; median (min - max)"
    columns = ("what", "s", "its imports alone", "an interpreter alone", "mark")
    shown: list[Sequence[str]] = []
    bare = _spread([one.seconds for one in limits["nothing"]])
    imports = _spread([one.seconds for one in limits["publisher"]])
    for name, ones in starts.items():
        for what, values in (
            ("first start", [one.first for one in ones]),
            ("after kill -9", [one.again for one in ones]),
        ):
            mark = _mark(values, _START_S)
            label = f"publisher of {name}, process start to first update delivered, {what}"
            shown.append((label, _spread(values), imports, bare, mark))
    shown.append(("wormholectl flows", _spread(command), _spread([one.seconds for one in limits["flows"]]), bare, ""))
    shown.append(("wormholectl --help", _spread(help_s), "", bare, _mark(help_s, _HELP_S)))
    sdk = [one.seconds for one in limits["SDK"]]
    shown.append(("import subscriber_sdk", _spread(sdk), "", bare, _mark(sdk, _SDK_S)))
    print_table(columns, shown, "", title)


def _print_rests(rest: dict[str, Rest], limits: dict[str, list[Imported]]) -> None:
    title = "At rest: a monitor and ten publishers of RocksDBs that nobody writes to"
    columns = ("process", "% of a core", "resident MB", "of these anonymous", "its imports alone MB", "mark")
    shown: list[Sequence[str]] = []
    for name, one in rest.items():
        kind = name.partition(",")[0]
        mark = ""
        if kind == "monitor":
            met = one.resident_mb < _RESIDENT_MB and one.cpu_percent < _CPU_PERCENT
            mark = f"< {_CPU_PERCENT:g} %, < {_RESIDENT_MB:g} MB {_verdict(met)}"
        imports = statistics.median(one.resident_mb for one in limits[kind])
        figures = (f"{one.cpu_percent:.2f}", f"{one.resident_mb:.1f}", f"{one.anonymous_mb:.1f}", f"{imports:.1f}")
        shown.append((name, *figures, mark))
    print_table(columns, shown, "", title)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}  ({min(values):.2f} - {max(values):.2f})"


def _mark(seconds: Sequence[float], most: float) -> str:
    return f"< {most:g} {_verdict(statistics.median(seconds) < most)}"


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"
