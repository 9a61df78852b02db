"""Noise for privacy: exact samples, their secret, and what they cost."""
