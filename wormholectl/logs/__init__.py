"""Opens and reads the log at a URL without a publisher, and finds the log in a configuration."""
