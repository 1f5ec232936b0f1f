"""Graphs from and for other tools: association CSV, SuperGlue, hloc, plain arrays of matches."""

from manymatch.io.associations_csv import read_associations_csv, write_associations_csv
from manymatch.io.h5 import read_hloc
from manymatch.io.load import load_graph
from manymatch.io.matches import graph_from_matches, read_superglue

__all__ = [
    "graph_from_matches",
    "load_graph",
    "read_associations_csv",
    "read_hloc",
    "read_superglue",
    "write_associations_csv",
]
