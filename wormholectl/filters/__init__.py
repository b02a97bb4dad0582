"""The noun ``filters``: shows what a filter selects, its effect on a log, and tables that lack its columns."""
