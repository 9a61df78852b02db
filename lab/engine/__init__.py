"""Runs of the two apps in this process: a Grid that calls the ClientApp itself."""
