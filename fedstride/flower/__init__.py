"""All that depends on Flower's private names, or on differences between Flower's versions.

A name is private if Flower's public packages do not have it: `flwr.app`, `flwr.clientapp`, `flwr.serverapp`,
`flwr.serverapp.strategy` and `flwr.simulation`. `tests/test_house.py` finds private names elsewhere. Numbers such
as "1.39 to 1.42" are the versions of Flower for which this was read in its code. The strategies work with 1.21,
the first version with `flwr.serverapp.strategy`; all else needs 1.39.

Nothing is imported here, because each user needs other modules: a node does not need the strategies.
"""
