"""``python -m wormholectl``: the command, where it is not on the PATH."""

from wormholectl import main

if __name__ == "__main__":
    main()
