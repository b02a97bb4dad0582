"""The nouns ``publishers``, ``shards``, ``caravans`` and ``subscribers``. They list these, and move logs."""
