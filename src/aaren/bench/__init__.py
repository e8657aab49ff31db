"""Benchmarks: ratios against peers, measured on the same inputs in one run."""
