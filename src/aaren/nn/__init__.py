"""Modules: the Aaren layer, its Transformer twin, and stacks of them."""
