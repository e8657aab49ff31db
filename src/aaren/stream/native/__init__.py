"""Streams without torch: a model's step as a program that a small C runtime executes."""
