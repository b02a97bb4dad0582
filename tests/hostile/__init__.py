"""Peers that attack.

What is counted is work (bytes held, steps, connections), never the clock; `-m soak` has the long forms."""
