"""The sums over clients that rules need: written plainly, and fast."""
