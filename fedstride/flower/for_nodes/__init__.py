"""What a node needs of Flower: the connection to its SuperLink, and messages as bytes."""
