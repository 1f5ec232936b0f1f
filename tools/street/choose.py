"""Choose the streets of the demo, and count how often several candidates gain and lose.

    python -m tools.street.choose --streets 30

Streets 0 to N - 1 are rendered as the demo's photographs are and matched with the presets
`embedded` and `classic`: by rank one with plain consensus, and by five candidates with the default
method, with the seeds 0 to 4. A pose is right within 5°. The street of the demo with a preset is
the first one on which rank one is wrong and five candidates are right with every seed. Needs torch;
takes some twenty seconds a street.
"""

from __future__ import annotations

import argparse
import io
import sys

import numpy as np
from PIL import Image

from manymatch import Matcher, pose_error_deg
from tools.street.__main__ import DEMO_QUALITY, DEMO_SEEDS, DEMO_SIZE
from tools.street.scene import RenderedScene, render_scene

_SEEDS, _RIGHT_DEG = 5, 5.0


def as_shipped(image: np.ndarray) -> np.ndarray:
    """Return an image after the compression of the demo's photographs."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=DEMO_QUALITY)
    return np.asarray(Image.open(buffer))


def errors_deg(scene: RenderedScene, matcher: Matcher) -> np.ndarray:
    """Return the pose errors of rank one and of five candidates, (2, seeds)."""
    features = matcher.extract([as_shipped(scene.image0), as_shipped(scene.image1)])
    errors = []
    for seed in range(_SEEDS):
        options = matcher.config.options.replace(seed=seed)
        cameras = scene.camera0, scene.camera1
        result = matcher.match_features(*features, *cameras, with_rank_one=True, options=options)
        several, one = (estimate.pose for _, estimate in result.systems())
        errors.append([pose_error_deg(pose, scene.pose.R, scene.pose.t) for pose in (one, several)])
    return np.array(errors).T


def main() -> None:
    """Print median errors by street, the counts, and the first street of every preset."""
    parser = argparse.ArgumentParser(prog="python -m tools.street.choose", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--streets", type=int, default=30, metavar="N")
    number = parser.parse_args().streets
    matchers = {preset: Matcher(preset) for preset in DEMO_SEEDS}
    heads = [f"{preset}, {kind}" for preset in matchers for kind in ("rank one", "five")]
    sys.stdout.write(f"| street | {' | '.join(heads)} |\n|{'---|' * (1 + len(heads))}\n")
    found = []
    for seed in range(number):
        scene = render_scene(seed, DEMO_SIZE)
        found.append([errors_deg(scene, matcher) for matcher in matchers.values()])
        medians = np.median(found[-1], axis=2).ravel()
        sys.stdout.write(f"| {seed} | {' | '.join(f'{error:.1f}' for error in medians)} |\n")
        sys.stdout.flush()
    right = np.array(found) < _RIGHT_DEG
    for k, preset in enumerate(matchers):
        one, several = right[:, k, 0], right[:, k, 1]
        gained = np.flatnonzero((several & ~one).all(axis=1)).tolist()
        sys.stdout.write(
            f"\n{preset}: of {one.size} runs, rank one is right in {one.sum()}, five candidates in "
            f"{several.sum()}; {(several & ~one).sum()} gained, {(one & ~several).sum()} lost. "
            f"Gained with every seed: streets {gained}.\n"
        )


if __name__ == "__main__":
    main()
