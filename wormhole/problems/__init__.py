"""The codes of problems: a stable name for all problems with the same remedy, with its entry of the runbook. Imports no
other package of the project.
"""
