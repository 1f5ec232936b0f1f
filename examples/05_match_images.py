"""Two images in, a pose out: match, look, and keep the result for other tools."""

import tempfile
from pathlib import Path

import manymatch
from manymatch.datasets import demo_pair
from manymatch.evaluate import pose_error_deg

# Two photographs that come with the package; paths of your own images work as well.
pair = demo_pair()
matcher = manymatch.Matcher("classic", max_keypoints=1500)
result = matcher.match(pair.path0, pair.path1, pair.camera0, pair.camera1)
print(result)

if result.estimate.success:
    error = pose_error_deg(result.estimate.pose, pair.R, pair.t)
    print(f"pose error {error:.2f} degrees, verdict {result.confidence.verdict}")

with tempfile.TemporaryDirectory() as folder:
    written = result.save(folder, formats=("npz", "colmap"), picture=False)
    print("written:", ", ".join(sorted(Path(path).name for path in written.values())))
