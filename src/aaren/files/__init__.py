"""Files: where they lie, how they come, how they are written whole. Knows nothing of what is in them."""
