"""Calls the application's callbacks, limits their time, retries failed callbacks, and logs failures."""
