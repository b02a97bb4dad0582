"""The streams of publishers: accepts or dials them, and connects each stream to the flows that it feeds."""
