"""What a process needs of its host: files, sockets, processes, certificates, HTTP, logs.

The package has more than twenty modules: each is about one thing of the host, and they share nothing.
"""
