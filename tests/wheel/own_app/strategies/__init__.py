"""Strategies of the app, in a package whose name fedstride's clone also uses."""
