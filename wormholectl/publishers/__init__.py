"""The nouns ``publishers``, ``shards``, ``caravans`` and ``subscribers``, and who owns a log."""
