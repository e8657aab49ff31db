"""Benchmarks: ratios against other methods, measured on the same inputs in one run."""
