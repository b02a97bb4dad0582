"""A log in memory, for tests and for the test kit."""
