"""The plot in a run's folder, and the style of all plots."""
