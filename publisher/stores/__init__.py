"""Where markers and dead letters are kept."""
