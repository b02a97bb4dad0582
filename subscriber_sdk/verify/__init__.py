"""Comparing the source's rows with those that the application holds, in place of their delivery."""
