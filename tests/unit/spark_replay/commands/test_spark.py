from __future__ import annotations

from pathlib import Path

import pytest

from spark_replay.spark import pack as packing
from tests.support.command_line import run


def test_what_was_packed_is_shown_with_the_line_that_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"wormhole-pubsub": "1.2", "pyarrow": "26.0", "pyspark": "4.3.0", "six": "1"}
    packed = packing.Packed(190 << 20, "3.11.7", versions, "glibc 2.36", ("libffi.so.8", "libssl.so.3"))
    asked: list[Path] = []

    def pack(to: Path) -> packing.Packed:
        asked.append(to)
        return packed

    monkeypatch.setattr(packing, "pack", pack)
    code, out, err = run("spark", "pack", "--to", "env.tar.gz")
    assert (code, err, asked) == (0, "", [Path("env.tar.gz")])
    said = " ".join(out.split())
    assert "env.tar.gz: 190 MiB, Python 3.11.7, wormhole-pubsub 1.2, pyarrow 26.0, pyspark 4.3.0" in said
    assert "Executors need of their system: glibc 2.36 or newer, libffi.so.8, libssl.so.3" in said
    assert "--archives 'env.tar.gz#env' --conf spark.pyspark.python=./env/bin/python" in said
    assert "spark_replay/submit.py --app APP" in said
