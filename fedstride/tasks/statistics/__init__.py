"""Numbers about the data of all sites, from what each of them computes alone."""
