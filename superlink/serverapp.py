"""The program of one ServerApp: reads its order from the standard input, and runs the app."""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Run the ServerApp of the order, and end this process."""
    order = json.loads(sys.stdin.buffer.read())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.argv = ["flwr-serverapp"]
    from fedstride.flower import serverapps

    ca = order["ca"]
    serverapps.run(order["address"], order["token"], None if ca is None else ca.encode(), order["parent"])


if __name__ == "__main__":
    main()
