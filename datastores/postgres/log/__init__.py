"""Reads the log: slots, the opening of readers at places, and the reader."""
