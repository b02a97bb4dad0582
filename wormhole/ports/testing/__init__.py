"""The contract suites of log sources and of their tables, for the tests of any package that has such a source
(docs/write-a-source.md).

``contract`` and ``table_contract`` have the tests and the harness that they drive. ``reading`` and ``images`` collect
what they read. ``plugin`` is loaded by pytest. Only tests import this package: it needs pytest, the extra ``testing``.
"""
