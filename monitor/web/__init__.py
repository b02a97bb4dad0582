"""The status page: the publishers of this host, positions in each log, and what needs attention.

::

    log_scale  pure: positions in one log -> distances from its end, and their places on the page's axis
    concerns   pure: what needs attention, how urgent it is, and who has to act: the texts of the page
    snapshot   pure: the host's state and the time -> one bounded object for JSON
    routes     the addresses: the page and its files, the object, and a stream of such objects
    assets/    the page itself: plain HTML, CSS and one JavaScript module, without files from other servers
"""

from monitor.web.routes import add_routes

__all__ = ["add_routes"]
