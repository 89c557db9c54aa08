"""`python -m benchmarks.trust.robustness`: the campaign; see `--help`."""

import sys

from .campaign import main

if __name__ == "__main__":
    sys.exit(main())
