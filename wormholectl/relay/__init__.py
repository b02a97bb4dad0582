"""The noun ``relay``: the record that a publisher keeps of its log on its own disk."""
