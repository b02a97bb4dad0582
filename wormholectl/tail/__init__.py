"""The command ``tail``: shows a log's updates as they are committed, without a publisher."""
