"""What people query: the current state, the history, and archive rows as columns."""
