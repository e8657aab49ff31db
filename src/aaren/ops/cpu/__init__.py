"""The scan as one compiled loop over time, for CPUs."""
