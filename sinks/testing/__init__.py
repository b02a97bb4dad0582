"""The contract suite of sinks, for the tests of any package that has one (docs/write-a-sink.md).

::

    harness     what a test module implements: the kind, its settings, and what its store holds
    story       a log as the suite writes it, and what a store has to hold after it
    contract    the tests
    plugin      is loaded by pytest

Only tests import this package: it needs pytest, the extra ``testing``.
"""
