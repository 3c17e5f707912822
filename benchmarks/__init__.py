"""Measured comparisons: `python -m benchmarks` runs them all and prints ratios of one run on one machine."""
