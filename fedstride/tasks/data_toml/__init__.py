"""A site's own file about its data (`data.toml`), and what it says of them."""
