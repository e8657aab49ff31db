"""Files: cache folders, locks, downloads, archives, checksums, atomic writes; whatever is in them."""
