"""The lab: the whole grid of experiments: planned, estimated, run on one machine or many, resumable."""
