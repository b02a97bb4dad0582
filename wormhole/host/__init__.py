"""What a process needs of its host: files, sockets, processes, certificates, HTTP, logs."""
