"""The command line, `python -m jaxsvm`."""

import sys

from .cli import main as main

if __name__ == "__main__":
    sys.exit(main())
