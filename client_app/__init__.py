"""The ClientApp: one client's part of one round. Knows neither the server nor Hydra."""
