"""Two images in, a pose out: match, look, and keep the result for other tools."""

import tempfile
from pathlib import Path

import manymatch
from manymatch.evaluate import pose_error_deg
from manymatch.matcher.files import save_result
from tools.street.rendered import render_scene

# Two made photographs of a street; paths of your own images work as well.
street = render_scene(seed=3, size=(480, 360))
matcher = manymatch.Matcher("classic", max_keypoints=1500)
result = matcher.match(street.image0, street.image1, street.camera0, street.camera1)
print(result)

if result.estimate.success:
    error = pose_error_deg(result.estimate.pose, street.pose.R, street.pose.t)
    print(f"pose error {error:.2f} degrees, verdict {result.confidence.verdict}")

with tempfile.TemporaryDirectory() as folder:
    written = save_result(result, folder, formats=("npz", "colmap"), picture=False)
    print("written:", ", ".join(sorted(Path(path).name for path in written.values())))
