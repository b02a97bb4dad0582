"""Checks whether an executor can run our tasks. The check runs on the executor before it unpickles our objects.

Without this check a missing package causes an error of pickle that names no host, and another release with the same
names is not noticed. So :func:`checked` sends its own code by value, and the driver's versions as plain text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

from wormhole.host.compiled import compiled_modules

__all__ = ["checked", "executor_fault", "needed"]

_Result = TypeVar("_Result")

_PACKAGES: Final = ("spark_replay", "wormhole")
_FAULT: Final = "cannot run tasks of Wormhole: "
_FOUND: Final = re.compile(rf"executor (\S+ {_FAULT}.*)")
_LOST: Final = re.compile(r"\(TID \d+\) \((\S+) executor")
_VERSIONS: Final = re.compile(r"\[PYTHON_VERSION_MISMATCH\] Python in worker has different version: ([\w.]+) than that "
                              r"in driver: ([\w.]+)")  # fmt: skip
_NO_PROGRAM: Final = re.compile(r'Cannot run program "([^"]+)"')
_NO_MODULE: Final = re.compile(
    r"(?:ModuleNotFoundError|Error from python worker)[^']*?No module named '?([\w.]+)", re.DOTALL
)
_HINT: Final = (
    "give executors the driver's packages: `wormholectl spark pack --to wormhole-env.tar.gz` packs them and prints the "
    "options of spark-submit"
)


@cache
def needed() -> dict[str, str]:
    """The versions and the compiled modules of this process, by their printed names. Executors must have the same."""
    found = _versions()
    found["compiled"] = " ".join(name for name in compiled_modules() if name.partition(".")[0] in _PACKAGES)
    return found


def checked(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """``function`` in a form for executors, which unpickle it only after their versions were checked.

    Pass no other objects of ours to Spark with it, because those are unpickled before the check.
    """
    from pyspark import cloudpickle as untyped

    cloudpickle: Any = untyped
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    pickled, wanted = cloudpickle.dumps(function), needed()

    def run(*arguments: Any) -> Any:
        return _loaded(pickled, wanted)(*arguments)

    return run


def executor_fault(error: BaseException) -> tuple[str, str] | None:
    """The problem of an executor and the next step, from the error with which Spark ended a job.

    ``None``: the job ended for another reason.
    """
    # PySpark's exception has only the worker's text. Java's exception names the host.
    said = f"{error}\n{getattr(error, '_origin', None) or ''}"
    host = f"executor {found[1]}" if (found := _LOST.search(said)) else "an executor"
    if found := _FOUND.search(said):
        return f"executor {found[1].strip()}", _HINT
    if found := _VERSIONS.search(said):
        why = f"it has Python {found[1]}, the driver {found[2]}"
    elif found := _NO_PROGRAM.search(said):
        why = f"there is no Python at {found[1]}"
    elif found := _NO_MODULE.search(said):
        why = f"its Python has no {found[1]}"
    else:
        return None
    return f"{host} {_FAULT}{why}", f"{_HINT}; PYSPARK_PYTHON names their interpreter"


# The code below runs on executors that may lack our packages. It uses only the standard library, imported in functions.


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"Python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
    for name in ("wormhole-pubsub", "pyarrow"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


def _lacking(wanted: dict[str, str]) -> str:
    """The relevant differences between this interpreter and the driver's; empty if there are none."""
    from importlib.machinery import EXTENSION_SUFFIXES
    from importlib.util import find_spec

    has = _versions()
    where = f"its Python is {sys.executable}"
    if wanted["wormhole-pubsub"] and not has["wormhole-pubsub"]:
        return f"it has no wormhole-pubsub, the driver has {wanted['wormhole-pubsub']}; {where}"
    differ = []
    for name in ("wormhole-pubsub", "Python", "pyarrow"):
        # Arrow's exchange format is compatible within a major release.
        mine, theirs = (one.split(".")[0] if name == "pyarrow" else one for one in (has[name], wanted[name]))
        if mine != theirs:
            differ.append(f"it has {name} {has[name]}" if has[name] else f"it has no {name}")
            differ[-1] += f", the driver {wanted[name]}"
    if differ:
        return f"{'; '.join(differ)}; {where}"
    for name in wanted["compiled"].split():
        found = find_spec(name)
        if found is None or not (found.origin or "").endswith(tuple(EXTENSION_SUFFIXES)):
            return f"{name} is not compiled, as it is in the driver; {where}"
    return ""


def _loaded(pickled: bytes, wanted: dict[str, str]) -> Any:
    import pickle
    import socket

    lacking = _lacking(wanted)
    if not lacking:
        try:
            return pickle.loads(pickled)  # noqa: S301 - what our own driver wrote
        except ImportError as error:
            lacking = f"{error}; its Python is {sys.executable}"
    raise RuntimeError(f"executor {socket.gethostname()} {_FAULT}{lacking}")
