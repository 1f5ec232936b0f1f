"""Many photographs of one place: CPU time and memory of each stage, and the model beside the truth.

    python -m tools.street place courtyard --images 1000 --variety 0.6 --size 480 360 --out out/1000
    python benchmarks/accuracy/many_photographs.py out/1000 --out out/1000-model [--known]

Memory is the highest of this process in a stage, and the highest of any child process up to its
end. The stages of a run that was continued hold only what was left to do. Accepted pairs whose
directions of view differ by more than 75 degrees are counted: in a courtyard they are wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pycolmap

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch as mm
from benchmarks.accuracy.all_pairs import read_cameras
from benchmarks.accuracy.reconstruction import cpu_seconds, judge_models, true_camera
from manymatch.reconstruct import reconstruct


def reset_peak() -> None:
    """Forget the highest memory of this process so far."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    """Return the highest memory of this process since it was reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("place", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--preset", default="classic")
    parser.add_argument("--keypoints", type=int, help="of an image at most")
    parser.add_argument("--known", action="store_true", help="cameras are known")
    parser.add_argument("--mapper", default="both")
    given = parser.parse_args()
    cameras = read_cameras(given.place / "cameras.json")
    stages: dict[str, dict[str, float]] = {}

    @contextlib.contextmanager
    def stage(run: Any, name: str) -> Iterator[None]:
        reset_peak()
        start = cpu_seconds()
        yield
        own = stages.setdefault(name, {"cpu_s": 0.0, "peak_mb": 0.0})
        spent = cpu_seconds() - start
        own["cpu_s"] += spent
        own["peak_mb"] = max(own["peak_mb"], peak_mb())
        children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        own["children_peak_mb"] = children
        run.seconds[name] = run.seconds.get(name, 0.0) + spent
        print(name, {key: round(value, 1) for key, value in own.items()}, flush=True)

    reconstruct._Run.stage = stage  # type: ignore[method-assign,assignment]
    known = true_camera(next(iter(cameras.values()))) if given.known else None
    most = {} if given.keypoints is None else {"max_keypoints": given.keypoints}
    preset = mm.MatcherConfig.of(given.preset, **most)
    found = mm.reconstruct(
        given.place / "images", given.out, known, preset, workers=1, mapper=given.mapper
    )
    spent = cpu_seconds()
    print(found)
    names = sorted(cameras)
    models = [pycolmap.Reconstruction(str(model.folder)) for model in found.models]
    judged = judge_models(models, cameras, names)
    accepted = [pair for pair in found.pairs if pair.accepted]
    wrong = 0
    for pair in accepted:
        one, two = (cameras[name] for name in (pair.name0, pair.name1))
        wrong += int(one["R"][2] @ two["R"][2] < np.cos(np.radians(75.0)))
    record = {
        "stages": stages,
        "cpu_minutes": spent / 60,
        **judged,
        "mappers": [model.mapper for model in found.models],
        "accepted": len(accepted),
        "accepted_but_looking_elsewhere": wrong,
        "tried": len(found.pairs),
    }
    (given.out / "measured.json").write_text(json.dumps(record, indent=1))
    print(json.dumps(record, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
