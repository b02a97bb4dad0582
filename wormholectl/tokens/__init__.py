"""Tokens of subscribers that dial."""
