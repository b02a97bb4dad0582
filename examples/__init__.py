"""Programs that show the system at work; the first lines of each show how to start it."""
