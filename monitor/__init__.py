"""The process that every host has one of: it runs the publishers that the configuration wants here.

::

    wanted      pure: configuration and host -> which logs, and the configuration file of each publisher
    plan        pure: wanted, what runs, what ended when, the time -> start, stop, kill
    supervisor  carries the plan out: processes (``processes``), their logs (``log_files``), adoption, restarts
    watcher     asks each publisher how it is (``asking``); what happened becomes an event (``happened``, pure)
    last_good   the configuration on disk, for a host whose ZooKeeper is away
    follower    what should run, from ZooKeeper or from disk, and the host's entry there
    state       what all of these know, read by the status page, the metrics and the health answers
    health, exposition, web   what is told over HTTP
    daemon      joins them, the one module that knows all others

Only ``wormhole`` is imported: a monitor has to run where nothing of a publisher is installed but its command.
"""
