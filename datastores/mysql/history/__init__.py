"""Which history of which server was read, and what proves that the log still belongs to it."""
