"""Her own strategies, below a name that fedstride's clone uses too."""
