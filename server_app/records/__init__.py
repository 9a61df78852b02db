"""The files of a run: what is written in each round, and from which a run is resumed."""
