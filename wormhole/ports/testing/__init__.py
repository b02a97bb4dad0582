"""The contract suite of log sources, for the tests of any package that has one (docs/write-a-source.md).

``contract`` has the tests and the harness that they drive, ``reading`` what they read, ``plugin`` is loaded by pytest.
Only tests import this package: it needs pytest, the extra ``testing``.
"""
