"""The datasets: where they come from, how they are read, what is on disk. Knows nothing of models."""
