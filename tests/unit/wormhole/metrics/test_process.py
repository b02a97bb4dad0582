"""The kernel's figures of this very process."""

import os

from wormhole.metrics.process import process_figures


def test_figures_are_of_this_process() -> None:
    before = process_figures()
    assert before.resident_bytes is not None
    assert 1 << 20 < before.resident_bytes < 1 << 36
    assert before.open_files is not None
    with open(os.devnull) as one:
        assert one.fileno() >= 0
        after = process_figures()
    assert after.open_files == before.open_files + 1
    assert after.cpu_seconds >= before.cpu_seconds > 0
