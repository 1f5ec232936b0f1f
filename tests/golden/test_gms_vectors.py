"""GMS masks of the paper's reference implementation, reproduced edge by edge."""

import re

import numpy as np
import pytest

import manymatch
from tests.support.data_folder import data_folder

pytestmark = pytest.mark.data

NAMES = [f"{ratio}_{n:02d}" for ratio in ("0.05", "0.10", "0.20", "0.40") for n in range(3)]
SETTING = re.compile(r"am([01])_s([01])_r([01])_t([0-9.]+)")


@pytest.fixture(scope="module")
def file():
    folder = data_folder()
    path = folder / "vectors" / "gms_vectors.npz" if folder else None
    if path is None or not path.is_file():
        pytest.skip("needs gms_vectors.npz in the vectors folder of the reference data")
    with np.load(path) as content:
        yield content


def test_the_names_are_those_of_the_file(file):
    assert sorted(file["names"]) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_gives_the_reference_mask(file, name):
    edges = np.column_stack([file[f"{name}/idx1"], file[f"{name}/idx2"]])
    graph = manymatch.AssociationGraph(file[f"{name}/kp1"], file[f"{name}/kp2"], edges)
    sizes = file[f"{name}/size1"], file[f"{name}/size2"]
    settings = [key.split("/")[1] for key in file.files if re.fullmatch(f"{name}/.*/mask", key)]
    assert len(settings) == 24
    for setting in settings:
        crop, scales, rotations, threshold = SETTING.fullmatch(setting).groups()
        result = manymatch.gms_filter(
            graph,
            *sizes,
            threshold=float(threshold),
            crop=crop == "1",
            scales=scales == "1",
            rotations=rotations == "1",
        )
        expected = file[f"{name}/{setting}/mask"]
        np.testing.assert_array_equal(result.mask, expected, err_msg=setting)
        assert result.num_kept == file[f"{name}/{setting}/count"] == expected.sum()
