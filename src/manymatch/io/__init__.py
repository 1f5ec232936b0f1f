"""From and for other tools: graphs, matches, poses, images, and the cameras of COLMAP models.

Arguments that do not fit are a `ValueError` of one sentence, and so are files that are missing
(then also a `FileNotFoundError`), damaged, too large or something else. A package that is needed
and not installed is a `ModuleNotFoundError`, which says how to get it. Writers take a file in an
existing folder, and give it its name only when it is complete.
"""

from manymatch.io.colmap import ColmapImage, read_cameras, read_images
from manymatch.io.colmap_matches import ColmapDatabaseWriter, ColmapWriter
from manymatch.io.graphs import load_graph, read_associations_csv, write_associations_csv
from manymatch.io.hloc import HlocWriter, read_hloc
from manymatch.io.image import exif_focal, load_image
from manymatch.io.matches import (
    AlternativePose,
    ImageRecord,
    PairMatches,
    graph_from_matches,
    read_matches_npz,
    read_superglue,
    write_matches_npz,
)
from manymatch.io.pairs import Pair, demo_pair, exhaustive_pairs, read_pairs

__all__ = [
    "AlternativePose",
    "ColmapDatabaseWriter",
    "ColmapImage",
    "ColmapWriter",
    "HlocWriter",
    "ImageRecord",
    "Pair",
    "PairMatches",
    "demo_pair",
    "exhaustive_pairs",
    "exif_focal",
    "graph_from_matches",
    "load_graph",
    "load_image",
    "read_associations_csv",
    "read_cameras",
    "read_hloc",
    "read_images",
    "read_matches_npz",
    "read_pairs",
    "read_superglue",
    "write_associations_csv",
    "write_matches_npz",
]
