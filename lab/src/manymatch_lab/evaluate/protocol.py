"""The paper's protocol in one record, and in which points a run differs from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from manymatch.associate.candidates import Association
from manymatch.features.feature_config import FEATURE_PRESETS
from manymatch.options import Options
from manymatch_lab.checks import choice, count
from manymatch_lab.numbers import paper_numbers

#: Name of the paper's protocol on the command line.
PAPER_NAME = "paper"
# A protocol does not say where weights are, but it does say whether there are any.
_WEIGHTS = ("weights", "detector_weights")
_RANDOM = "random"
# The paper gives this as a number; a configuration may leave it to the detector.
_SUPERPOINT_NMS_RADIUS = 4


_PAPER = paper_numbers("protocol")


class PaperProtocol:
    """The paper's practical configuration, which its second to fourth question share.

    It fixes everything of an evaluation apart from the machine. The seed of pair i, from 1, in
    repetition b, from 0, is i + b.
    """

    preset: str = _PAPER["preset"]
    presets: tuple[str, ...] = tuple(_PAPER["presets"])
    association = Association.paper()
    method: str = _PAPER["method"]
    options = Options(**_PAPER["options"])
    seeds: int = _PAPER["seeds"]
    pairs: Mapping[str, int] = MappingProxyType(_PAPER["pairs"])
    own_size: tuple[str, ...] = tuple(_PAPER["own_size"])


PAPER = PaperProtocol()


def checked_protocol(name: object) -> None:
    """Refuse a protocol that there is not."""
    choice(name, "protocol", (PAPER_NAME,))


@dataclasses.dataclass(frozen=True)
class RecordedRun:
    """The record of one run, to be compared with a protocol.

    `source` and `config` are those of the header of the run, in JSON types; graphs of the user's
    own may have any source. `wanted` is the configuration that the protocol has, in the same form,
    and `presets` are the features that it has. `debiased` are the directions of position that were
    removed, if any.
    """

    source: Mapping[str, Any]
    config: Mapping[str, Any]
    pairs: int
    wanted: Mapping[str, Any]
    presets: Sequence[str] = (PAPER.preset,)
    debiased: int | None = None


def assumptions(runs: Iterable[RecordedRun]) -> list[str]:
    """Say what is taken for the paper's in these runs although nothing here tells that it is."""
    texts = []
    for run in runs:
        texts += run.source.get("assumed", [])
        name = _set_name(run.source)
        if name in PAPER.pairs and run.source.get("paper_list") is None:
            texts.append(f"the pairs of {name} are the published ones")
        if _is_imported(run.source, run.presets):
            texts.append(f"the imported candidates are those of {run.source['representation']}")
    return list(dict.fromkeys(texts))


def differences(runs: Iterable[RecordedRun], *, complete: bool = False) -> list[str]:
    """Say in which points runs, whose numbers stand in one table, differ from the paper's protocol.

    `complete` says whether the protocol has all of the paper's sets, and all presets of the runs.
    """
    runs = list(runs)
    texts = [text for run in runs for text in _of_source(run.source, run.presets)]
    for run in runs:
        texts += unequal("method", run.config["estimator"], run.wanted["estimator"])
        for part in ("association", "options"):
            for name, value in run.config[part].items():
                texts += unequal(name, value, run.wanted[part].get(name))
        for name in ("proposals_rank", "seeds", "unknown_focal"):
            texts += unequal(name, run.config.get(name, False), run.wanted.get(name, False))
    sets = [_set_name(run.source) for run in runs]
    texts += [text for run in runs for text in _of_pairs(run)]
    others = [name for name in dict.fromkeys(sets) if name not in PAPER.pairs]
    if others:
        texts.append(f"{', '.join(others)} instead of the paper's sets")
    if complete:
        here = [_preset(run.source) for run in runs]
        presets = [preset for run in runs for preset in run.presets]
        if any(preset in here for preset in presets):
            texts += _without("presets", presets, here)
        if len(others) < len(set(sets)):
            texts += _without("sets", PAPER.pairs, sets)
    return list(dict.fromkeys(texts))


def protocol_sentence(differing: Sequence[str], assumed: Sequence[str] = ()) -> str:
    """Say whether a run is by the paper's protocol, from `differences` and `assumptions`."""
    if not differing and not assumed:
        return "This is the paper's protocol."
    known = f"Differs from the paper's protocol in: {', '.join(differing)}."
    text = known if differing else "No difference from the paper's protocol is known."
    return f"{text} Assumed: {'; '.join(assumed)}." if assumed else text


def unequal(name: str, value: object, wanted: object) -> list[str]:
    """Name a setting with both of its values if they differ."""
    if value == wanted:
        return []
    return [f"{name} {_text(value)} instead of {_text(wanted)}"]


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return "/".join(_text(part) for part in value) or "none"
    return str(value)


def _without(name: str, wanted: Iterable[str], here: Sequence[str | None]) -> list[str]:
    absent = [one for one in dict.fromkeys(wanted) if one not in here]
    return [f"{name} without {', '.join(absent)}"] if absent else []


def _preset(source: Mapping[str, Any]) -> Any:
    """Name the preset; the representation also says in which precision it was computed."""
    return source.get("preset", source.get("representation"))


def _set_name(source: Mapping[str, Any]) -> str:
    return str(source.get("set", "another set"))


def _of_pairs(run: RecordedRun) -> list[str]:
    """Compare the pairs of a set, and what was found in them."""
    name, source = _set_name(run.source), run.source
    wanted = PAPER.pairs.get(name, source.get("pair_count", run.pairs))
    texts = []
    if run.pairs != wanted:
        texts.append(f"{count(run.pairs, 'pair')} of {name} instead of {wanted:,}")
    elif source.get("paper_list") is False:
        texts.append(f"another list of pairs of {name} than the paper's")
    asked = source.get("features", {}).get("debias")
    if None not in (run.debiased, asked) and run.debiased != asked:
        texts.append(f"{run.debiased} directions of position removed instead of {asked}")
    return texts


def _is_imported(source: Mapping[str, Any], presets: Sequence[str]) -> bool:
    """Whether candidates come from files that name one of the protocol's representations."""
    return "graph_files_hash" in source and source.get("representation") in presets


def _of_source(source: Mapping[str, Any], presets: Sequence[str]) -> list[str]:
    """Compare where the candidates come from."""
    texts = []
    if "features" in source:
        preset = str(_preset(source))
        if preset not in presets:
            texts += [f"preset {preset} instead of {presets[0]}"]
        texts += _of_features(source["features"], preset)
        texts += source.get("other_weights", [])
        texts += unequal("operator", source["operator"], PAPER.association.operator)
    elif "scene" in source:
        texts += [f"synthetic candidates instead of those of {presets[0]}"]
    elif "system" not in source and not _is_imported(source, presets):
        name = source.get("representation", "another source")
        texts += [f"candidates of {name} instead of those of {presets[0]}"]
    for side, given in enumerate(source.get("longest", ())):
        wanted = 0 if side and _set_name(source) in PAPER.own_size else None
        # The length itself is one of the features.
        texts += [] if given == wanted else [f"longest{side} {_text(given)} of {_set_name(source)}"]
    return texts


def _of_features(features: Mapping[str, Any], preset: str) -> list[str]:
    """Compare features with their preset."""
    wanted = FEATURE_PRESETS[preset].to_dict()
    texts = []
    for name, value in features.items():
        if name == "sampling":  # the paper's text leaves it open
            continue
        if name in _WEIGHTS:
            texts += [f"{name} {_RANDOM}"] if value == _RANDOM else []
        elif name == "nms_radius" and features["detector"] == "superpoint":
            radius = _SUPERPOINT_NMS_RADIUS if value is None else value
            texts += unequal(name, radius, _SUPERPOINT_NMS_RADIUS)
        else:
            texts += unequal(name, value, wanted.get(name))
    return texts
