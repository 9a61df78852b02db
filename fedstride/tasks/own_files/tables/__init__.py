"""Tables of a node's own: files, rows, cells, and the examples in them."""
