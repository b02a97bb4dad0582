"""The status page: what runs on this host, who is where in each log, which flow needs somebody.

::

    log_line   pure: places of one log -> distances from its end, and where they stand on a line
    concerns   pure: what needs somebody, how much, and whose move it is
    snapshot   pure: the host's state and the time -> one bounded object for JSON
    page       the addresses: the page and its files, the object, and a stream of such objects
    assets/    the page itself: plain HTML, CSS and one JavaScript module, nothing fetched from elsewhere
"""

from monitor.web.page import add_routes

__all__ = ["add_routes"]
