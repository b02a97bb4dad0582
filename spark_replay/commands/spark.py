"""The noun ``spark``: what a cluster needs to run our jobs."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from wormholectl.shared.errors import needs
from wormholectl.show.printer import print_text, say_waiting

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Give a Spark cluster what our jobs need.")

_MIB = 1 << 20


@app.command(epilog="Examples:\n\n  wormholectl spark pack --to wormhole-env.tar.gz")
@needs("spark")
def pack(
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE", help="The archive, FILE.tar.gz; replaced.", show_default=False)
    ],
) -> None:
    """Pack this environment for executors: Python, this release with its compiled modules, and what both need.

    `spark-submit --archives` sends the file to YARN, Kubernetes or a standalone cluster. It fits hosts of the same
    processor with a C library that is not older.
    """
    import spark_replay
    from spark_replay.spark import pack as packing

    say_waiting("packing, a minute or two")
    packed = packing.pack(to)
    versions = ", ".join(f"{name} {packed.packages[name]}" for name in (packing.NAME, "pyarrow", "pyspark"))
    print_text(f"{to}: {packed.size / _MIB:.0f} MiB, Python {packed.python}, {versions}")
    print_text(
        f"Executors need of their system: {packed.c_library} or newer, {', '.join(packed.libraries) or 'no more'}"
    )
    submit = Path(spark_replay.__file__).with_name("submit.py")
    words = ["spark-submit", "--master", "yarn", "--archives", f"{to}#env"]
    words += ["--conf", "spark.pyspark.python=./env/bin/python"]
    words += ["--conf", f"spark.pyspark.driver.python={sys.executable}", str(submit)]
    print_text(f"Use it, with the options of `wormholectl replay` at the end:\n{shlex.join(words)} --app APP")
