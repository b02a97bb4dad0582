"""The findings of `wormholectl doctor`: settings, tables, a folder of binlog files, growth. It only reads."""
