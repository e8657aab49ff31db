"""The datasets: where they come from, how they are read, what is on disk. Knows nothing of models."""

from aaren.data.dataset import Dataset
from aaren.data.registry import DATASETS, EXTRAS, lookup

__all__ = ["DATASETS", "EXTRAS", "Dataset", "lookup"]
