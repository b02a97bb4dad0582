"""Processes the updates of flows: calls the application's callbacks, handles failures, acknowledges finished work."""
