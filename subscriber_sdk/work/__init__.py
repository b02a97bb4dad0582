"""One flow at work: what arrived runs through the application's callbacks, and finished work is acknowledged."""
