"""`python -m benchmarks.trust.mutants`; see `--help`."""

import sys

from .campaign import main

if __name__ == "__main__":
    sys.exit(main())
