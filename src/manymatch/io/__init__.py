"""From and for other tools: graphs, matches, poses, images, and the cameras of COLMAP models."""

from manymatch.io.associations_csv import read_associations_csv, write_associations_csv
from manymatch.io.colmap import (
    ColmapImage,
    read_cameras,
    read_images,
    relative_pose,
)
from manymatch.io.colmap_lookup import camera_of_image
from manymatch.io.colmap_write import write_colmap_features, write_colmap_matches
from manymatch.io.exif import exif_focal
from manymatch.io.h5 import read_hloc
from manymatch.io.h5_write import write_hloc
from manymatch.io.image import load_image
from manymatch.io.load import load_graph
from manymatch.io.matches import graph_from_matches, read_superglue
from manymatch.io.matches_npz import read_matches_npz, write_matches_npz
from manymatch.io.pose_json import read_pose_json, write_pose_json

__all__ = [
    "ColmapImage",
    "camera_of_image",
    "exif_focal",
    "graph_from_matches",
    "load_graph",
    "load_image",
    "read_associations_csv",
    "read_cameras",
    "read_hloc",
    "read_images",
    "read_matches_npz",
    "read_pose_json",
    "read_superglue",
    "relative_pose",
    "write_associations_csv",
    "write_colmap_features",
    "write_colmap_matches",
    "write_hloc",
    "write_matches_npz",
    "write_pose_json",
]
