"""A matcher of your own beside other sources: its matches and SIFT's candidates in one graph.

Needs `pip install ".[viz,images]"`. Usage: 10_own_matcher.py [image0 image1]
"""

import sys
from pathlib import Path

import cv2
import numpy as np

import manymatch as mm


def orb(image0, image1):
    """Match two RGB images: pixels in either, (M, 2) each, and scores above 0, at most 1."""
    detector = cv2.ORB_create(2000)
    (keypoints0, bits0), (keypoints1, bits1) = (
        detector.detectAndCompute(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), None)
        for image in (image0, image1)
    )
    matches = cv2.BFMatcher(cv2.NORM_HAMMING, crossCheck=True).match(bits0, bits1)
    points0 = np.array([keypoints0[match.queryIdx].pt for match in matches])
    points1 = np.array([keypoints1[match.trainIdx].pt for match in matches])
    return points0, points1, 1.0 - np.array([match.distance for match in matches]) / 257.0


photos = Path(__file__).parent / "photos"
images = sys.argv[1:3] if len(sys.argv) > 2 else [photos / "street2.jpg", photos / "street3.jpg"]
result = mm.Matcher(sources=["classic", orb]).match(*images)
print(result)
for name, counts in result.to_dict()["sources"].items():
    print(f"{name}: {counts['kept']} candidates, {counts['matches']} matches")
