"""The one training engine: configs, the loop, checkpoints, records."""
