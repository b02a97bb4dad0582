"""Flows: which there are, who receives each, what is stored of each, and what becomes of one that cannot go on."""
