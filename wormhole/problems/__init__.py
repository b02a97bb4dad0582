"""The codes of problems: a stable name for all that have one remedy, with its entry of the runbook. Imports nothing of
ours.
"""
