"""``python -m wormhole.cli``: the command, where it is not on the PATH."""

from wormhole.cli import main

if __name__ == "__main__":
    main()
