"""Labelled series for classification: read from `.ts` files, standardised, padded into batches."""

from aaren.classification.data import (
    ClassificationData,
    LabelledSeries,
    Standardise,
    find_test_part,
    load,
    measure,
    normalise_across_channels,
    open_files,
    prepare,
)

__all__ = [
    "ClassificationData",
    "LabelledSeries",
    "Standardise",
    "find_test_part",
    "load",
    "measure",
    "normalise_across_channels",
    "open_files",
    "prepare",
]
