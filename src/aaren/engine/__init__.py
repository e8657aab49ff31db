"""The one training engine: configs, the loop, checkpoints, records. Knows nothing of any setting."""
