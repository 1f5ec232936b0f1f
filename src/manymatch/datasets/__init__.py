"""Pairs of views with known pose."""

from manymatch.datasets import synthetic
from manymatch.datasets.base import Pair
from manymatch.datasets.pairs import exhaustive_pairs, read_pairs

__all__ = ["Pair", "exhaustive_pairs", "read_pairs", "synthetic"]
