"""Folders for what Spark writes on the driver's machine, which other users of it may not read.

Spark keeps blocks of rows in files that everybody may read, below folders that everybody may list. The folders here are
made before Spark uses them, and their user alone may enter them. The JVM removes them when it ends, which it does with
this process, however that ends.
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
_DIRS: Final = "SPARK_LOCAL_DIRS"  # counts more than spark.local.dir, and only the environment has it
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"  # for a JVM that spark-submit starts, beside those that the user configured
_ADDRESS: Final = "SPARK_LOCAL_IP"


class Scratch:
    """The folders of one session. ``folders``: those that were made so far."""

    def __init__(self) -> None:
        self.folders: list[Path] = []

    @property
    def _own(self) -> Path:
        return self.folders[0] if self.folders else self._made(None)

    def variables(self, *, local: bool) -> dict[str, str]:
        """The environment of a JVM that is started: its temporary files are in here, and those of its Python workers.
        ``local``: it runs all tasks itself, so nothing that it opens needs to be reached from elsewhere.
        """
        options = f'-Djava.io.tmpdir="{self._own}" -XX:ErrorFile="{self._own}/hs_err_%p.log"'
        found = {"TMPDIR": str(self._own), _OPTIONS: f"{os.environ.get(_OPTIONS, '')} {options}".strip()}
        if chosen := os.environ.get(_DIRS):
            found[_DIRS] = self._inside(chosen)
        if local:
            found[_ADDRESS] = os.environ.get(_ADDRESS, "127.0.0.1")
        return found

    def settings(self, given: Mapping[str, str]) -> dict[str, str]:
        """Spark's settings of folders. ``given``: those that the user chose, in which these are made."""
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
        """A folder in each of these, which are separated by commas."""
        return ",".join(str(self._made(Path(root.strip()))) for root in roots.split(",") if root.strip())

    def _made(self, root: Path | None) -> Path:
        if root is not None:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))  # has mode 0700, whatever the umask
        self.folders.append(made)
        return made


@contextmanager
def set_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment within the block."""
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
