"""What `wormholectl doctor` finds: settings, tables, a folder of binlog files, growth. It only reads."""
