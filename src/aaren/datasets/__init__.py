"""The datasets: where they come from, how they are read, what is on disk."""

from aaren.datasets.catalogue import DATASETS, EXTRAS, lookup
from aaren.datasets.dataset import Dataset

__all__ = ["DATASETS", "EXTRAS", "Dataset", "lookup"]
