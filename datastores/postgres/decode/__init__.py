"""What pgoutput sends, to updates."""
