"""A mass replay: updates of the archive pushed again, until the live log takes over."""
