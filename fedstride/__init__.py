"""The words that both sides share: configuration, wire names, arrays, seeds, errors, tasks.

Knows neither the server nor the client. Importing it loads nothing heavy.
"""

__version__ = "0.1.0"
