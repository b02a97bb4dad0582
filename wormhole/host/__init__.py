"""What a process needs of its host: files, sockets, processes, certificates, HTTP, logs.

It has more than twenty modules: each stands for one thing of the host, and they share nothing.
"""
