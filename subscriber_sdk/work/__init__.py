"""One flow at work: the application's callbacks process what arrived, and finished work is acknowledged."""
