"""The scan in Triton, for CUDA; by request only."""
