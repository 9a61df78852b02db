"""Which replies of a round are used, and what a rule gets of them."""
