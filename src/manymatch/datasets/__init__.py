"""Pairs of views with known pose."""

from manymatch.datasets import synthetic
from manymatch.datasets.dataset import Dataset, DepthView
from manymatch.datasets.demo import demo_pair
from manymatch.datasets.layout import Layout, LayoutPart
from manymatch.datasets.registry import DatasetInfo, check, info, load, names
from manymatch.io.pairs import Pair, exhaustive_pairs, read_pairs

__all__ = [
    "Dataset",
    "DatasetInfo",
    "DepthView",
    "Layout",
    "LayoutPart",
    "Pair",
    "check",
    "demo_pair",
    "exhaustive_pairs",
    "info",
    "load",
    "names",
    "read_pairs",
    "synthetic",
]
