"""The data sets of the paper, found by ``manymatch`` through an entry point."""

import functools
from typing import Any

from manymatch_lab.datasets import megadepth, metu, navi, scannet
from manymatch_lab.datasets.registry import DatasetInfo


def _navi(name: str) -> DatasetInfo:
    return DatasetInfo(
        name,
        navi.TITLES[name],
        navi.ABOUT[name],
        navi.GET,
        navi.layout(name),
        functools.partial(navi.load, name),
        functools.partial(navi.check, name),
        navi.NUM_PAIRS,
        options=("splits",),
    )


def _metu(name: str) -> DatasetInfo:
    return DatasetInfo(
        name,
        metu.TITLES[name],
        metu.ABOUT[name],
        metu.GET,
        metu.layout(name),
        functools.partial(metu.load, name),
        functools.partial(metu.check, name),
        metu.NUM_PAIRS[name],
    )


def _plain(module: Any, options: tuple[str, ...] = ()) -> DatasetInfo:
    return DatasetInfo(
        module.NAME,
        module.TITLE,
        module.ABOUT,
        module.GET,
        module.LAYOUT,
        module.load,
        module.check,
        module.NUM_PAIRS,
        options,
    )


#: What the entry point gives.
INFOS = (
    _plain(scannet),
    _plain(megadepth),
    _navi("navi-multi"),
    _navi("navi-wild"),
    _navi("navi-wild-diagnostic"),
    _metu("metu-cc"),
    _metu("metu-cs"),
)
