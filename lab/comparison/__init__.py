"""One model for all sites, a model of each site alone, and one of all rows at one place, on the same rows."""
