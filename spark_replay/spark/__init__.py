"""Starts Spark sessions, and distributes work to executors."""
