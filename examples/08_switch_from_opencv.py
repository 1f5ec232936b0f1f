"""A program for OpenCV with one line changed: the same calls, on several candidates per keypoint.

Needs `pip install ".[images]"`. Usage: 08_switch_from_opencv.py [candidates.csv]
"""

import sys
from pathlib import Path

import cv2 as opencv
import numpy as np

import manymatch as mm
from manymatch.compat import cv2  # the line that changes: import cv2

path = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "photos" / "candidates.csv"
graph = mm.io.load_graph(path)
# A list of matched pixels, as programs for OpenCV have it. Several rows begin with the same pixel.
points0, points1 = graph.points0[graph.edges[:, 0]], graph.points1[graph.edges[:, 1]]
K = np.array([[768, 0, 479.5], [0, 768, 359.5], [0, 0, 1.0]])

for name, module in (("OpenCV", opencv), ("manymatch", cv2)):
    E, mask = module.findEssentialMat(points0, points1, K, module.RANSAC, 0.999, 1.0)
    count, R, t, _ = module.recoverPose(E, points0, points1, K, mask=mask)
    turned = np.degrees(np.linalg.norm(module.Rodrigues(R)[0]))
    print(
        f"{name}: {count} of {len(points0)} rows, turned {turned:.2f} degrees, t {t[:, 0].round(3)}"
    )
