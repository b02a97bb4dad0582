"""The noun ``relay``: shows, verifies and trims the copy of a log that a publisher keeps on its own disk."""
