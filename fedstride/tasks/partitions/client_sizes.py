"""Numbers of examples for partitions: sizes of the clients, their classes, and tables with given sums.

All functions are pure. They work with numbers of examples and not with the examples.
"""

from __future__ import annotations

from collections import deque

import numpy as np

SWEEPS = 200
"""Iterations of `table_with_sums` over rows and columns. What is then still missing is corrected exactly."""


def equal_sizes(total: int, clients: int) -> np.ndarray:
    """`total` as `clients` whole numbers that differ by at most one, the larger ones first. int64 (clients,)."""
    return total // clients + (np.arange(clients) < total % clients).astype(np.int64)


def power_law_sizes(total: int, clients: int, exponent: float, least: int) -> np.ndarray:
    """Sizes with the sum `total`: client k has a share proportional to (k + 1) ** -exponent. int64 (clients,).

    A client whose share is below `least` gets `least`; the shares of the others shrink by the same factor.
    Needs `clients * least <= total`.
    """
    weights = np.arange(1, clients + 1, dtype=np.float64) ** -float(exponent)
    last = (total - least * np.arange(clients - 1, -1, -1)) * weights / np.cumsum(weights)  # of the first k + 1
    head = int(np.flatnonzero(last >= least).max(initial=0)) + 1
    sizes = np.full(clients, float(least))
    sizes[:head] = (total - least * (clients - head)) * weights[:head] / weights[:head].sum()
    return largest_remainders(sizes, total)


def largest_remainders(shares: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers near `shares`, whose sum is `total`, with the sum `total`: rounded down, or up by one at most.

    Those with the largest fractional parts are rounded up, the first ones if these are equal. int64 (n,).
    """
    near = np.round(
        shares, 6
    )  # so that the last bits of a sum, which can depend on the machine, have no influence
    floors = np.floor(near).astype(np.int64)
    up = np.argsort(-np.round(near - floors, 6), kind="stable")[: total - int(floors.sum())]
    floors[up] += 1
    return floors


def classes_of_clients(
    counts: np.ndarray, sizes: np.ndarray, classes_per_client: int, rng: np.random.Generator
) -> np.ndarray:
    """Which classes each client gets: bool (clients, classes), with `classes_per_client` True in each row.

    `counts`: examples of each class. `sizes`: examples that each client will have. The clients choose one after
    the other, the largest first. Each takes the classes of which most is left, and subtracts an equal part of its
    size from each. Classes that differ by less than this part count as equal and are taken at random. So a class
    gets clients in proportion to its number of examples. Each class gets at least one client: needs
    `clients * classes_per_client >= classes`.
    """
    clients, classes = len(sizes), len(counts)
    held = np.zeros((clients, classes), dtype=bool)
    holders = np.zeros(classes, dtype=np.int64)
    left = counts.astype(np.int64) * classes_per_client  # times classes_per_client, to stay in whole numbers
    for turn, client in enumerate(np.argsort(-sizes, kind="stable")):
        order = rng.permutation(classes)
        full = holders[order] >= counts[order]
        most = left[order][~full].max(initial=0)
        order = order[np.lexsort((-np.minimum(left[order], most - sizes[client] + 1), full))]
        later = (clients - turn - 1) * classes_per_client
        unheld = order[holders[order] == 0]
        must = unheld[: max(0, len(unheld) - later)]
        others = order[~np.isin(order, must)]
        chosen = np.concatenate([must, others[: classes_per_client - len(must)]])
        held[client, chosen] = True
        holders[chosen] += 1
        left[chosen] -= sizes[client]
    return held


def table_with_sums(allowed: np.ndarray, rows: np.ndarray, columns: np.ndarray, least: int) -> np.ndarray | None:
    """Whole numbers with these sums of rows and columns, of at least `least` where `allowed`, otherwise 0.

    `allowed`: bool (clients, classes). `rows`: int64 (clients,), `columns`: int64 (classes,), of the same sum.
    The numbers are as even as the sums permit: proportional fitting of rows and columns in turn, then rounding.
    Then single examples are moved to other cells until the columns have their sums, too. Returns None if there is
    no such table.
    """
    minimum = np.where(allowed, least, 0).astype(np.int64)
    free_rows, free_columns = rows - minimum.sum(axis=1), columns - minimum.sum(axis=0)
    if (free_rows < 0).any() or (free_columns < 0).any():
        return None
    even = allowed.astype(np.float64)
    shares = even
    for _ in range(SWEEPS):
        shares = _scaled(shares, free_columns[None, :], 0)
        shares = _scaled(shares, free_rows[:, None], 1)
        if np.abs(shares.sum(axis=0) - free_columns).max() < 1e-9:
            break
    lost = np.round(shares.sum(axis=1), 6) != free_rows  # rows that had only columns without examples
    shares = np.where(lost[:, None], _scaled(even, free_rows[:, None], 1), shares)
    extra = [largest_remainders(row, int(total)) for row, total in zip(shares, free_rows, strict=True)]
    table = minimum + np.stack(extra)
    return _with_column_sums(table, allowed, columns, least)


def _scaled(shares: np.ndarray, wanted: np.ndarray, axis: int) -> np.ndarray:
    """`shares` with the sums `wanted` along the axis. A row or column of zeros stays as it is."""
    sums = shares.sum(axis=axis, keepdims=True)
    factors: np.ndarray = np.divide(wanted, sums, out=np.zeros_like(sums), where=sums > 0)
    scaled: np.ndarray = shares * factors
    return scaled


def _with_column_sums(
    table: np.ndarray, allowed: np.ndarray, columns: np.ndarray, least: int
) -> np.ndarray | None:
    """The table with examples moved inside its rows until the columns have these sums; None if that is impossible.

    A move takes examples of a class with too many and ends at a class with too few. On its way, each client gives
    up examples of one class and gets as many of another one (a maximum flow by shortest paths).
    """
    excess = table.sum(axis=0) - columns
    while (excess > 0).any():
        path = _path(table, allowed, excess, least)
        if not path:
            return None
        start, end = path[0][1], path[-1][2]
        amount = int(min(excess[start], -excess[end], *(table[client, a] - least for client, a, _ in path)))
        amount = max(1, amount // 10)  # several small moves, so that not one client makes up for all
        for client, a, b in path:
            table[client, a] -= amount
            table[client, b] += amount
        excess[start] -= amount
        excess[end] += amount
    return table


def _path(table: np.ndarray, allowed: np.ndarray, excess: np.ndarray, least: int) -> list[tuple[int, int, int]]:
    """The moves (client, from class, to class) of a shortest path from too many to too few examples; or []."""
    came_from: dict[int, tuple[int, int] | None] = {int(c): None for c in np.flatnonzero(excess > 0)}
    queue = deque(came_from)
    while queue:
        a = queue.popleft()
        givers = np.flatnonzero(allowed[:, a] & (table[:, a] > least))
        givers = givers[np.argsort(-table[givers, a], kind="stable")]
        for b in np.flatnonzero(allowed[givers].any(axis=0)).tolist():
            if b in came_from:
                continue
            came_from[b] = (int(givers[np.argmax(allowed[givers, b])]), a)
            if excess[b] < 0:
                return _moves(came_from, b)
            queue.append(b)
    return []


def _moves(came_from: dict[int, tuple[int, int] | None], end: int) -> list[tuple[int, int, int]]:
    moves = []
    while (step := came_from[end]) is not None:
        client, start = step
        moves.append((client, start, end))
        end = start
    return moves[::-1]
