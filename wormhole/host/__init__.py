"""Access to the host that a process runs on: files, sockets, processes, certificates, HTTP, logs.

The package has more than twenty modules: each handles one resource of the host, and they share no code.
"""
