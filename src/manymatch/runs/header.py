"""What a batch computes, for its records and to refuse to mix it with another."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any

import manymatch
from manymatch.features.device import choose_device
from manymatch.features.versions import library_versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from manymatch.io.pair import Pair
    from manymatch.matcher.config import MatcherConfig

# Packages that compute numbers where no network runs.
_WITHOUT_NETWORK = ("numpy", "opencv")


def batch_header(
    config: MatcherConfig,
    pairs: Sequence[Pair],
    device: str,
    cameras: object,
    *,
    compare: bool,
    matches: bool,
) -> dict[str, Any]:
    """Everything that decides the rows; a folder in which any of it differs is refused."""
    whole = config.to_dict()
    estimation = whole["estimation"]
    del estimation["threads"]  # changes nothing
    if not estimation["without"]:
        # Only "auto" has parts that can be left out; batches of other methods stay what they were.
        del estimation["without"]
    # In the order in which a difference is told: most others follow from the method. What the
    # method wants is written as it is, so that naming it makes no other batch.
    settings = {
        "estimation": estimation,
        "features": whole["features"],
        "association": dataclasses.asdict(config.association.for_method(config.method)),
    }
    network = config.features.needs_torch
    used = {
        name: version
        for name, version in library_versions().items()
        if network or name in _WITHOUT_NETWORK
    }
    return {
        "config": settings,
        "config_hash": _hash([settings]),
        "pair_count": len(pairs),
        "pair_list_hash": _hash(map(_pair_record, pairs)),
        "image_folder_hash": _hash(
            [str(path.absolute()) for path in (pair.path0, pair.path1)] for pair in pairs
        ),
        "cameras": None if cameras is None else str(cameras),
        "compare": compare,
        "matches": matches,
        "device": choose_device(device).type if network else None,
        "versions": {"manymatch": manymatch.__version__, **used},
    }


def _pair_record(pair: Pair) -> list[Any]:
    return [
        pair.name0,
        pair.name1,
        pair.rot0,
        pair.rot1,
        None if pair.camera0 is None else pair.camera0.to_dict(),
        None if pair.camera1 is None else pair.camera1.to_dict(),
        None if pair.R is None else pair.R.tolist(),
        None if pair.t is None else pair.t.tolist(),
    ]


def _hash(records: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for record in records:
        digest.update(json.dumps(record, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()
