"""``python -m manymatch`` is the command ``manymatch``."""

from manymatch.cli.app import main

if __name__ == "__main__":
    main()
