"""``python -m wormholectl`` runs the command if it is not on the PATH."""

from wormholectl import main

if __name__ == "__main__":
    main()
