"""Decodes pgoutput's messages into updates."""
