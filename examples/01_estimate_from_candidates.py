"""Candidates of your own matcher, several per keypoint, to a relative pose and one-to-one matches.

Needs only `pip install .`. Usage: 01_estimate_from_candidates.py [candidates.csv]
"""

import sys
from pathlib import Path

import manymatch as mm

PHOTOS = Path(__file__).parent / "photos"

# A line per candidate: left_idx,right_idx,x1,y1,x2,y2,similarity,k. A keypoint may have several.
path = sys.argv[1] if len(sys.argv) > 1 else PHOTOS / "candidates.csv"
graph = mm.io.load_graph(path)  # or mm.AssociationGraph(points0, points1, edges, rank=rank)
K = [[768, 0, 479.5], [0, 768, 359.5], [0, 0, 1]]  # focal length and centre in pixels

estimate = mm.estimate_relative_pose(graph, K, K)
if not estimate.success:
    raise SystemExit(f"no pose: {estimate.failure}")
first = {tuple(edge) for edge in graph.up_to_rank(1).edges.tolist()}
beyond = sum(tuple(match) not in first for match in estimate.matches.tolist())
print(f"{graph.num_edges} candidates, {len(estimate.matches)} one-to-one matches")
print(f"{beyond} of the matches are not the most similar candidates of their keypoints")
print(f"rotation\n{estimate.pose.R.round(4)}\ndirection of translation {estimate.pose.t.round(4)}")
print(mm.assess(estimate))
