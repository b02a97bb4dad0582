from __future__ import annotations

import subprocess
import sys
from functools import partial
from operator import add
from pathlib import Path
from typing import Any

import pyspark.cloudpickle
import pytest

from spark_replay.spark import executors
from spark_replay.spark.executors import checked, executor_fault, needed

cloudpickle: Any = pyspark.cloudpickle
PYTHON = "its Python is "


def test_an_executor_that_has_what_the_driver_has_calls_the_function() -> None:
    assert cloudpickle.loads(cloudpickle.dumps(checked(partial(add, 1))))(2) == 3


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("wormhole-pubsub", "9.9", r"it has wormhole-pubsub [\d.]+, the driver 9.9; " + PYTHON),
        ("pyarrow", "1.0.1", r"it has pyarrow [\d.]+, the driver 1.0.1; " + PYTHON),
        ("Python", "3.9", r"it has Python 3.\d+, the driver 3.9; " + PYTHON),
        ("compiled", "wormhole.wire.varint", "wormhole.wire.varint is not compiled, as it is in"),
    ],
)
def test_what_an_executor_has_otherwise_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setattr(executors, "needed", lambda: needed() | {name: value} | COMPILED.get(name, {}))
    run = checked(partial(add, 1))
    with pytest.raises(RuntimeError, match=rf"executor \S+ cannot run tasks of Wormhole: {said}") as caught:
        run(2)
    found = executor_fault(ValueError(f"Job aborted: a task failed\nRuntimeError: {caught.value}\n\tat java.base/"))
    assert found is not None
    message, hint = found
    assert message == str(caught.value)
    assert "wormholectl spark pack" in hint


COMPILED = {"Python": {"compiled": ""}, "pyarrow": {"compiled": ""}, "wormhole-pubsub": {"compiled": ""}}


def test_of_arrow_releases_within_one_major_release_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    major = needed()["pyarrow"].partition(".")[0]
    monkeypatch.setattr(executors, "needed", lambda: needed() | {"pyarrow": f"{major}.99.99", "compiled": ""})
    assert checked(partial(add, 1))(1) == 2


def test_packages_that_were_not_installed_are_the_same_where_nobody_installed_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A checkout in PYTHONPATH, of driver and executors."""
    uninstalled = needed() | {"wormhole-pubsub": "", "compiled": ""}
    monkeypatch.setattr(executors, "_versions", lambda: uninstalled)
    monkeypatch.setattr(executors, "needed", lambda: uninstalled)
    assert checked(partial(add, 1))(1) == 2


def test_a_package_that_the_function_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    run = checked(partial(add, 1))

    def missing(_: bytes) -> None:
        raise ModuleNotFoundError("No module named 'pandas'")

    monkeypatch.setattr("pickle.loads", missing)
    with pytest.raises(RuntimeError, match=f"cannot run tasks of Wormhole: No module named 'pandas'; {PYTHON}"):
        run(2)


def test_a_python_without_the_package_says_so_itself(tmp_path: Path) -> None:
    """Nothing of ours is imported there to find out: what Spark sends is enough."""
    sent = tmp_path / "sent"
    sent.write_bytes(cloudpickle.dumps(checked(partial(add, 1))))
    program = (
        "import glob, pickle, sys\nsys.path[:0] = glob.glob(sys.argv[1] + '/*.zip')\n"
        "pickle.load(open(sys.argv[2], 'rb'))(2)"
    )
    bare = [str(Path(sys.base_prefix, "bin", "python{}.{}".format(*sys.version_info))), "-I", "-S"]
    done = subprocess.run(
        [*bare, "-c", program, str(Path(pyspark.__file__).parent / "python" / "lib"), str(sent)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    said = f"cannot run tasks of Wormhole: it has no wormhole-pubsub, the driver has {needed()['wormhole-pubsub']}"
    assert said in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in driver: 3.11, PySpark",
            "it has Python 3.10, the driver 3.11",
        ),
        (
            'java.io.IOException: Cannot run program "./env/bin/python": error=2, No such file',
            "there is no Python at ./env/bin/python",
        ),
        ("ModuleNotFoundError: No module named 'spark_replay'\n\tat java", "its Python has no spark_replay"),
        ("Error from python worker:\n  /usr/bin/python3: No module named pyspark\n", "its Python has no pyspark"),
    ],
)
def test_what_ends_a_worker_before_our_code_is_translated_too(said: str, message: str) -> None:
    lost = "Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 2): "
    expected = (
        f"executor 10.0.0.7 cannot run tasks of Wormhole: {message}",
        f"{executors._HINT}; PYSPARK_PYTHON names their interpreter",
    )
    assert executor_fault(ValueError(lost + said)) == expected
    captured: Any = ValueError(said)
    assert "an executor cannot run" in str(executor_fault(captured))
    captured._origin = f"Job aborted due to stage failure: {lost}"
    assert executor_fault(captured) == expected


def test_other_errors_are_somebody_else_s() -> None:
    assert executor_fault(ValueError("Job aborted: Task 0 failed 4 times")) is None
