"""Programs that show the system at work; each says how it is started in its first lines."""
