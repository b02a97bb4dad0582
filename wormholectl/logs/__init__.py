"""The log at a URL, without a publisher: what its URL means, opening it, reading its segments, what a configuration
says about it."""
