"""Whole systems of real processes, killed at random moments, and a count of what arrived."""
