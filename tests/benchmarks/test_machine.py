"""What the output says about the machine."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.machine import Machine, processor


def test_the_processor_is_the_model_that_the_kernel_names() -> None:
    assert processor("processor\t: 0\nmodel name\t: One @ 3.1 GHz\nmodel name\t: Other\n") == "One @ 3.1 GHz"
    assert processor("processor\t: 0\n") == "unknown processor"


def test_cores_load_and_priority_are_named() -> None:
    text = str(Machine.current())
    assert text.startswith(f"{os.cpu_count()} cores (")
    assert "load " in text
    program = "from benchmarks.machine import Machine; print(Machine.current())"
    command = ["nice", "-n", "19", sys.executable, "-c", program]
    assert "normal (nice 19) priority" in subprocess.run(command, check=True, capture_output=True, text=True).stdout
