"""`python run_ways.py UID LEVEL`: all ways, unconfined and confined, as JSON."""

from __future__ import annotations

import ways_of_files
import ways_of_processes
import ways_of_the_kernel
from trials import WAYS, main

TABLES = (ways_of_files, ways_of_processes, ways_of_the_kernel)
__all__ = ["TABLES", "WAYS"]

if __name__ == "__main__":
    main()
