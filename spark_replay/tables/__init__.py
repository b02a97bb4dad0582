"""Tables for queries: the current state, the history, and archive rows as columns."""
