"""The lab: the whole grid of experiments, planned, priced, run on one machine or many, and never lost."""
