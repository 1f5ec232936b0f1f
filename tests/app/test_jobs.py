"""What the app computes: planes on each other, folders and models, with what it keeps."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from manymatch.app.folder import finished_pairs
from manymatch.app.jobs import EXPORTS, Jobs
from manymatch.app.request import PairRequest
from manymatch.viz.aligned import warp
from tests.app.conftest import DEMO


@pytest.fixture(scope="module")
def jobs():
    return Jobs(lambda _: None)


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """A photograph, and the same as a picture on a wall seen from the side."""
    folder = tmp_path_factory.mktemp("plane")
    image = np.asarray(Image.open(DEMO / "street2.jpg").convert("RGB"))
    K = np.array([[900.0, 0.0, 479.5], [0.0, 900.0, 359.5], [0.0, 0.0, 1.0]])
    c, s = np.cos(0.3), np.sin(0.3)
    turned = np.array([[c, 0.0, s + 0.4], [0.0, 1.0, 0.0], [-s, 0.0, c + 0.1]])
    H = K @ turned @ np.linalg.inv(K)
    seen = warp(image, np.linalg.inv(H), image.shape[1::-1])[..., :3]
    paths = (folder / "a.png", folder / "b.png")
    for path, pixels in zip(paths, (image, seen), strict=True):
        Image.fromarray(pixels).save(path)
    return paths


def test_plane_is_aligned(jobs, plane):
    for cameras in ((None, None), ("900", "900")):
        request = PairRequest(plane, cameras=cameras)
        found = jobs.match(request)
        assert found["planar"], found["said"]
        page = jobs.align(request)
        assert "Image 0 and image 1 warped onto it" in page
        assert "a.png" in page
    photos = (DEMO / "street2.jpg", DEMO / "street3.jpg")
    assert not jobs.match(PairRequest(photos))["planar"]


def test_page_of_the_app_has_no_heading_and_all_numbers(jobs):
    photos = (DEMO / "street2.jpg", DEMO / "street3.jpg")
    found = jobs.match(PairRequest(photos))
    assert '<body class="hosted">' in found["page"]
    assert "<header>" not in found["page"]
    assert [name for _, name, _ in found["numbers"]] == ["probability", "uncertainty", "matches"]
    for value, _, _ in found["numbers"]:
        assert value in found["page"]
    assert "manymatch match street2.jpg street3.jpg --preset classic" in found["page"]


def test_every_format_is_a_download(jobs, tmp_path):
    photos = (DEMO / "street2.jpg", DEMO / "street3.jpg")
    files = jobs.export(PairRequest(photos), EXPORTS, tmp_path)
    assert len(files) == len(EXPORTS)
    assert all(path.stat().st_size > 0 and path.parent.is_relative_to(tmp_path) for path in files)


def test_failing_pair_has_one_number(jobs):
    photos = (DEMO / "street0.jpg", DEMO / "courtyard/images/10.jpg")
    found = jobs.match(PairRequest(photos, cameras=("768", "512")))
    assert found["kind"] in ("bad", "doubt")
    assert found["numbers"][-1][1] == "matches"


@pytest.mark.nightly
def test_folder_is_matched_and_reconstructed(tmp_path):
    steps = []
    jobs = Jobs(steps.append)
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(0, 20, 3):
        shutil.copy(DEMO / f"courtyard/images/{number:02d}.jpg", photos)
    summary = jobs.batch(photos, tmp_path / "batch", tmp_path / "cache", "classic")
    rows = finished_pairs(tmp_path / "batch")
    assert len(rows) == summary["total"] == 21
    assert steps[-1]["finished"] == 21
    model = jobs.reconstruct(photos, tmp_path / "model", tmp_path / "cache", "classic")
    assert "photographs" in model["said"]
    if model["page"] is not None:
        assert model["archive"].suffix == ".zip"
        assert "<html" in model["page"]
    json.dumps(summary)
