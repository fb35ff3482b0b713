"""`python -m attndrop_repro` is `attndrop`."""

import sys

from attndrop_repro.cli import main

if __name__ == "__main__":
    sys.exit(main())
