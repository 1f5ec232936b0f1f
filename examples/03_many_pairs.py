"""Many pairs of photographs at once: features once per image, then all poses on all cores.

Needs `pip install ".[images]"`. Usage: 03_many_pairs.py [folder with pairs.txt]
"""

import sys
from pathlib import Path

import manymatch as mm

folder = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "photos"
pairs = list(mm.io.read_pairs(Path(folder) / "pairs.txt", folder))  # files, cameras and true poses

extractor = mm.Matcher("classic").extractor  # SIFT; any other preset works as well
files = {file.name: file for pair in pairs for file in (pair.path0, pair.path1)}
features = {name: extractor.extract(file) for name, file in files.items()}

problems = []
for pair in pairs:
    f0, f1 = features[pair.path0.name], features[pair.path1.name]
    found = mm.candidates(f0.points, f1.points, f0.descriptors, f1.descriptors, f0.size, f1.size)
    problems.append((found.graph, pair.camera0, pair.camera1))

for pair, estimate in zip(pairs, mm.estimate_many(problems), strict=True):
    error = mm.pose_error_deg(estimate.pose, pair.R, pair.t)
    sure = mm.assess(estimate)
    print(
        f"{pair.name0} {pair.name1}: {sure.verdict} ({sure.pose_probability:.2f}), "
        f"{len(estimate.matches)} matches, pose error {error:.2f} degrees"
    )
