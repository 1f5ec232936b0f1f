"""Results of synthetic scenes, as `Matcher.match` makes them of images."""

from manymatch import MatcherConfig, assess
from manymatch.matcher.match_result import MatchResult, RankOneResult


def made_result(scene, estimate, *, images=None, rank_one=None, **changes):
    """Return the result of a scene; `rank_one` is an estimate, `changes` are other fields."""
    sizes = [scene.size] * 2 if images is None else [image.shape[1::-1] for image in images]
    fields = {
        "graph": scene.graph,
        "estimate": estimate,
        "camera0": scene.camera0,
        "camera1": scene.camera1,
        "images": images,
        "size0": sizes[0],
        "size1": sizes[1],
        "names": ("a.jpg", "b.jpg"),
        "config": MatcherConfig(),
        "counts": {},
        "notes": [],
        "timing": {},
        "rank_one": rank_one and RankOneResult(scene.graph.up_to_rank(1), rank_one),
        **changes,
    }
    return MatchResult(**{"confidence": assess(estimate), **fields})
