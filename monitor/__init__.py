"""The monitor: the process on each host that starts, restarts and stops the publishers as the configuration requires.

::

    desired_logs      pure: configuration and host -> the logs, and the configuration file of each publisher
    plan              pure: desired logs, processes, past ends, the time -> start, stop, kill
    supervisor        carries the plan out: processes (``processes``), their output (``log_files``), adoption, restarts
    status_poller     polls the status of each publisher (``publisher_client``); changes become events (``status_diff``)
    last_good_config  the configuration on disk, for a host whose ZooKeeper does not answer
    config_follower   the configuration, from ZooKeeper or from disk, and the host's entry in ZooKeeper
    state             the state of the host, read by the status page, the metrics and the health answers
    health, metrics, web   the HTTP answers
    daemon            joins all other modules

A monitor imports only ``wormhole`` and uses a publisher only through its command.
"""
