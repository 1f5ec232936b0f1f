"""Accuracy over time: our presets, and the usual features and matchers with PoseLib.

    python benchmarks/accuracy/field.py --out out/field --seeds 2
    python benchmarks/accuracy/field.py --systems fused "SIFT, PoseLib" --limit 5
    python benchmarks/accuracy/field.py --systems mixtures --out out/field

Every system matches the pairs with known poses of the reference data, resized to a longer edge of
1024 px (thermal frames stay as they are), with at most 2048 keypoints per image. "auto" resolves
the candidates of ours; the others hand one-to-one matches to PoseLib. Features are kept in
``<out>/features``, and an interrupted run resumes. The time is that of a further pair of two
rendered photographs of 1024 x 768 px, images read, with networks that are loaded, in a process of
its own: the minimum and the median of several. Systems with LightGlue match every third pair, once
(their differences are on the pairs that both matched). Writes ``field.md`` and ``field.png``.

``--systems mixtures`` compares the lists of sources from which "fused" and "fast" were chosen, also
with every set left out in turn: which list the other sets choose, and what it gives on that one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.accuracy import protocol
from manymatch import Matcher, MatcherConfig, Options
from manymatch.associate.candidates import Association
from manymatch.features.weight_files import WeightsError
from manymatch_lab.evaluate.estimators import estimate_with_poselib
from manymatch_lab.evaluate.inputs import GraphReader
from manymatch_lab.evaluate.run import RunConfig
from manymatch_lab.evaluate.statistics import auc_by_seed, macro_difference
from manymatch_lab.evaluate.tables import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from manymatch._validate import FloatArray

ROOT = Path(__file__).resolve().parents[2]
PAIR = [str(ROOT / f"examples/photos/street{k}.jpg") for k in (0, 3)]


def described(detector: str) -> dict[str, Any]:
    """Return the source of EfficientNet's features at the keypoints of a detector."""
    backbone = {"descriptor": "efficientnet-lite0", "layer": 10}
    return {
        "name": f"efficientnet at {detector}".replace(" ", "-"),
        "detector": detector,
        **backbone,
    }


SIFT = {"name": "sift", "preset": "classic"}
S724, S512 = ({**SIFT, "longest": longest} for longest in (724, 512))
XFEAT, T16, N16 = ({"name": d, "detector": d} for d in ("xfeat", "aliked-t16", "aliked-n16"))
EX, ET, EN = map(described, ("xfeat", "aliked-t16", "aliked-n16"))
GLUED = {"name": "aliked-lightglue", "detector": "aliked", "matcher": "lightglue"}
#: Lists of sources from which presets were chosen; E is EfficientNet at the keypoints before it.
MIXTURES: dict[str, list[Any]] = {
    "SIFT, XFeat E, t16 E": [SIFT, XFEAT, EX, T16, ET],
    "XFeat E, t16 E, SIFT 724": [XFEAT, EX, T16, ET, S724],
    "XFeat E, t16 E, SIFT 724, 1024": [XFEAT, EX, T16, ET, {**S724, "max_keypoints": 1024}],
    "XFeat E, t16 E, SIFT 512": [XFEAT, EX, T16, ET, S512],
    "(XFeat) E, t16 E, SIFT 724": [EX, T16, ET, S724],
    "(XFeat) E, (t16) E, SIFT 724": [EX, ET, S724],
    "XFeat, t16 E, SIFT 724": [XFEAT, T16, ET, S724],
    "SIFT, t16 E": [SIFT, T16, ET],
    "t16 E, SIFT 724": [T16, ET, S724],
    "SIFT, XFeat E": [SIFT, XFEAT, EX],
    "XFeat E, SIFT 724": [XFEAT, EX, S724],
    "XFeat E, t16 E": [XFEAT, EX, T16, ET],
    "t16 E": [T16, ET],
    "XFeat E": [XFEAT, EX],
    "XFeat, SIFT 512": [XFEAT, S512],
    "t16, SIFT 512": [T16, S512],
    "(XFeat) E, SIFT 512": [EX, S512],
}
OURS: dict[str, list[Any]] = {
    name: [name] for name in ("fused", "fast", "classic", "embedded", "best")
}
#: Systems whose one-to-one matches PoseLib takes.
THEIRS: dict[str, list[Any]] = {
    "SIFT, PoseLib": [SIFT],
    "XFeat, PoseLib": [XFEAT],
    "ALIKED, PoseLib": [N16],
    "XFeat + LighterGlue, PoseLib": [{"detector": "xfeat", "matcher": "lightglue"}],
    "ALIKED + LightGlue, PoseLib": [{"detector": "aliked", "matcher": "lightglue"}],
}
#: Lists with LightGlue, from which "best" was chosen.
LARGE: dict[str, list[Any]] = {
    "n16 LightGlue, (XFeat) E": [GLUED, EX],
    "n16 LightGlue, XFeat E, SIFT 724": [GLUED, XFEAT, EX, S724],
}
SYSTEMS = {**OURS, **THEIRS, **MIXTURES, **LARGE}


class Thinned(GraphReader):
    """Every so many-th pair of a set."""

    def __init__(self, whole: GraphReader, step: int) -> None:
        self.name, self.title, self.representation = whole.name, whole.title, whole.representation
        self._whole, self._step = whole, step

    @property
    def identity(self) -> dict[str, Any]:
        """The whole set, and the step."""
        return {**self._whole.identity, "every": self._step}

    def __len__(self) -> int:
        return (len(self._whole) + self._step - 1) // self._step

    def __getitem__(self, index: int) -> Any:
        return self._whole[index * self._step]

    def about(self, index: int) -> dict[str, str]:
        """Names, scene and bin of a pair."""
        return self._whole.about(index * self._step)


def is_slow(name: str) -> bool:
    """Tell whether LightGlue runs."""
    return any("lightglue" in str(part) for part in SYSTEMS[name]) or name == "best"


def run_config(name: str, config: MatcherConfig) -> RunConfig:
    """Say how the candidates of a system become a pose."""
    if name in THEIRS:
        return RunConfig("poselib", Association.rank_one(None), Options())
    first, *further = (source.association for source in config.sources)
    return RunConfig("auto", first, Options(), further=tuple(further))


def errors_of(name: str, folder: Path, sets: Sequence[str], given: Any) -> list[FloatArray]:
    """Return the errors of a system in degrees, (seeds, pairs) for each set."""
    config = MatcherConfig.of(sources=SYSTEMS[name])
    readers: Any = protocol.open_sets(folder, sets, config, given.out / "features")
    slow = is_slow(name)
    if slow:
        readers = [Thinned(reader, given.every) for reader in readers]
    place, seeds = given.out / "runs" / name.replace(" ", ""), 1 if slow else given.seeds
    found = protocol.run(readers, {name: run_config(name, config)}, place, seeds, given.limit)
    return [run.errors for run in found[name]]


def difference(
    first: Sequence[FloatArray], second: Sequence[FloatArray], every: int
) -> Sequence[Any]:
    """Return the intervals of the difference of two systems on the pairs that both matched."""
    pairs = [
        tuple(
            one[: min(len(a), len(b)), :: every if one.shape[1] > other.shape[1] else 1]
            for one, other in ((a, b), (b, a))
        )
        for a, b in zip(first, second, strict=True)
    ]
    return macro_difference(*map(list, zip(*pairs, strict=True))).interval


def time_pairs(name: str, repeats: int) -> list[float]:
    """Return the seconds of further pairs, images read, with networks that are loaded."""
    matcher = Matcher(sources=SYSTEMS[name])
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        if name in THEIRS:
            features = matcher.extract(PAIR)
            cut = [Association.rank_one(None)] * len(matcher.sources)
            found, _ = matcher.candidates(*features, cut)
            size = features[0][0].size
            camera = {"model": "SIMPLE_PINHOLE", "width": size[0], "height": size[1]}
            camera["params"] = [768.0, size[0] / 2, size[1] / 2]
            estimate_with_poselib(found.graph, camera, camera, Options())
        else:
            matcher.match(*PAIR)
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def timed_alone(name: str, repeats: int) -> list[float]:
    """Do `time_pairs` in a process of its own."""
    command = [sys.executable, __file__, "--time", str(repeats), "--systems", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def draw(path: Path, rows: Mapping[str, tuple[float, float]]) -> None:
    """Draw AUC@10 over seconds a pair; squares are systems with PoseLib."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4.5), layout="constrained", dpi=120)
    for name, (seconds, auc) in rows.items():
        ours = name not in THEIRS
        axes.plot(seconds, auc, "o" if ours else "s", color="#0b6e4f" if ours else "#777777")
        axes.annotate(
            name.removesuffix(", PoseLib"), (seconds, auc), (6, -3), textcoords="offset points",
            fontsize=8, weight="bold" if ours else "normal",
        )  # fmt: skip
    axes.set_xscale("log")
    ticks = [0.2, 0.3, 0.5, 1.0, 2.0]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.margins(x=0.18)
    axes.set_xlabel("seconds a pair on two cores")
    axes.set_ylabel("AUC@10°, mean over sets")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, which="both", linewidth=0.3, alpha=0.5)
    figure.savefig(path)


def main() -> None:
    parser = protocol.arguments(__doc__.splitlines()[0])
    parser.add_argument("--systems", nargs="+", default=[*OURS, *THEIRS], help="names; see SYSTEMS")
    parser.add_argument("--sets", nargs="+", help="names of sets; by default all")
    parser.add_argument("--limit", type=int, help="only that many pairs of every set")
    parser.add_argument("--repeats", type=int, default=5, help="timed pairs; 0 leaves times out")
    parser.add_argument("--every", type=int, default=3, help="pairs with LightGlue")
    parser.add_argument("--time", type=int, help="only time this number of pairs of one system")
    given = parser.parse_args()
    wanted = list(MIXTURES) if given.systems == ["mixtures"] else given.systems
    if given.time:
        sys.stdout.write(f"{json.dumps(time_pairs(wanted[0], given.time))}\n")
        return
    folder = protocol.reference_data("posed_pairs")
    if folder is None:
        return
    sets = protocol.posed_sets(folder, given.sets)
    errors: dict[str, list[FloatArray]] = {}
    lines, drawn = [], {}
    for name in wanted:
        try:
            errors[name] = errors_of(name, folder, sets, given)
        except WeightsError as error:
            lines.append([name, f"not run: {str(error).split(';')[0]}", *[""] * 3])
            continue
        by_set = [auc_by_seed(own) for own in errors[name]]
        against = "fused" if "fused" in errors else next(iter(errors))
        gain = difference(errors[name], errors[against], given.every)
        seconds = timed_alone(name, given.repeats) if given.repeats else [np.nan]
        lines.append([
            f"{name} (every {given.every}. pair, once)" if is_slow(name) else name,
            protocol.auc_text(np.mean(by_set, axis=0)),
            " / ".join(f"{value:+.1f}" for value in gain),
            f"{min(seconds):.2f} / {np.median(seconds):.2f}",
            *map(protocol.auc_text, by_set),
        ])  # fmt: skip
        drawn[name] = min(seconds), float(np.mean(by_set, axis=0).mean(0)[1])
        sys.stdout.write(f"{lines[-1][:4]}\n")
        sys.stdout.flush()
    pairs = max(sum(own.shape[1] for own in of_sets) for of_sets in errors.values())
    header = ["system", "AUC@5/10/20, macro", f"minus {against}", "seconds, min / median", *sets]
    note = f"{pairs} pairs, {given.seeds} seeds; in brackets 95 % intervals over pairs."
    tables = [Table("Accuracy over time", header, lines, [note])]
    if given.systems == ["mixtures"]:
        tables.append(protocol.left_out(errors, sets))
    protocol.write(given.out, "field", tables)
    if given.repeats:
        draw(given.out / "field.png", drawn)


if __name__ == "__main__":
    main()
