"""Pairs of views with known pose: data sets by name, folders with pair lists, synthetic scenes."""

from manymatch.io.pairs import Pair, exhaustive_pairs, read_pairs
from manymatch_lab.datasets import synthetic
from manymatch_lab.datasets.dataset import Dataset, DatasetInfo, DepthView, Layout, LayoutPart
from manymatch_lab.datasets.registry import check, info, load, names

__all__ = [
    "Dataset",
    "DatasetInfo",
    "DepthView",
    "Layout",
    "LayoutPart",
    "Pair",
    "check",
    "exhaustive_pairs",
    "info",
    "load",
    "names",
    "read_pairs",
    "synthetic",
]
