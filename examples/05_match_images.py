"""Two images in, a pose out: match, look, and keep the result for other tools.

Needs `pip install ".[images]"`, pictures also `".[viz]"`. Usage: 05_match_images.py [image0 image1]
"""

import sys
import tempfile
from pathlib import Path

import manymatch as mm

photos = Path(__file__).parent / "photos"
images = sys.argv[1:3] if len(sys.argv) > 2 else [photos / "street0.jpg", photos / "street3.jpg"]

result = mm.Matcher().match(*images)  # focal lengths are found; or camera0=, camera1=
print(result)
if result:
    points0, points1 = result.matched_points
    best = result.estimate.match_probability.argmax()
    print(f"a match: {points0[best].round(1)} in image 0 is {points1[best].round(1)} in image 1")
    print(result.confidence)

with tempfile.TemporaryDirectory() as folder:  # or a folder of your own
    written = result.save(folder, formats=("npz", "h5"), picture=False)
    print("written:", ", ".join(sorted(Path(path).name for path in written.values())))
