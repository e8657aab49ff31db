"""`python -m aaren` is the command `aaren`."""

from aaren.cli.main import main

if __name__ == "__main__":
    main()
