"""Private folders for files that Spark writes on the driver's machine.

Spark stores blocks of rows in files that every user may read, below folders that every user may list. The folders here
are made before Spark uses them, and only their user may enter them. The JVM removes them when it ends. The JVM ends
whenever this process ends.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

__all__ = ["Scratch", "set_variables"]

_PREFIX: Final = "wormhole-spark-"
_DIRS: Final = "SPARK_LOCAL_DIRS"  # takes precedence over spark.local.dir, and only the environment has it
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"  # added to the user's options for a JVM that spark-submit starts
_ADDRESS: Final = "SPARK_LOCAL_IP"


class Scratch:
    """The folders of one session. ``folders``: the folders that were made so far."""

    def __init__(self) -> None:
        self.folders: list[Path] = []

    @property
    def _own(self) -> Path:
        return self.folders[0] if self.folders else self._made(None)

    def variables(self, *, local: bool) -> dict[str, str]:
        """The environment for a new JVM. It puts temporary files of the JVM and its Python workers into these folders.

        ``local``: the JVM runs all tasks itself, so its ports need not be reachable from other hosts.
        """
        options = f'-Djava.io.tmpdir="{self._own}" -XX:ErrorFile="{self._own}/hs_err_%p.log"'
        found = {"TMPDIR": str(self._own), _OPTIONS: f"{os.environ.get(_OPTIONS, '')} {options}".strip()}
        if chosen := os.environ.get(_DIRS):
            found[_DIRS] = self._inside(chosen)
        if local:
            found[_ADDRESS] = os.environ.get(_ADDRESS, "127.0.0.1")
        return found

    def settings(self, given: Mapping[str, str]) -> dict[str, str]:
        """Spark's settings of folders. ``given``: the user's settings; our folders are made in the user's."""
        chosen = given.get("spark.local.dir")
        found = {"spark.local.dir": self._inside(chosen) if chosen else str(self._own)}
        if "spark.sql.warehouse.dir" not in given:
            found["spark.sql.warehouse.dir"] = str(self._own / "warehouse")
        return found

    def remove_with(self, jvm: Any) -> None:
        """Have the JVM remove the folders when it ends."""
        for folder in self.folders:
            jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(str(folder)))

    def remove(self) -> None:
        """Remove the folders of a session that did not start."""
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _inside(self, roots: str) -> str:
        """A new folder in each of ``roots``, which are separated by commas."""
        return ",".join(str(self._made(Path(root.strip()))) for root in roots.split(",") if root.strip())

    def _made(self, root: Path | None) -> Path:
        if root is not None:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))  # has mode 0700, whatever the umask
        self.folders.append(made)
        return made


@contextmanager
def set_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Within the block, set variables of the environment."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
