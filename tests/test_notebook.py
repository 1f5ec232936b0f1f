"""The notebook of the tour runs from top to bottom and says what its sentences promise."""

import re
from pathlib import Path

import pytest

# Of the packages that run notebooks.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "tour.ipynb"


def printed(cell):
    return "".join(output.get("text", "") for output in cell["outputs"])


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("cv2")
    pytest.importorskip("pycolmap")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    where = {"metadata": {"path": str(tmp_path_factory.mktemp("tour"))}}
    nbclient.NotebookClient(notebook, timeout=900, resources=where).execute()
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def cell_with(cells, text):
    (found,) = (cell for cell in cells if text in cell["source"])
    return found


def test_several_candidates_find_the_pose_and_one_does_not(cells):
    text = printed(cell_with(cells, "errors = {"))
    own, usual = (float(error) for error in re.findall(r"off by ([\d.]+)°", text))
    assert own < 1.0
    assert usual > 5.0


def test_wrong_pose_has_more_inliers_but_fewer_matches(cells):
    text = printed(cell_with(cells, "score_pose"))
    rows = re.findall(r"(\d+) inliers, (\d+) one-to-one", text)
    (inliers, matches), (wrong_inliers, wrong_matches) = ((int(a), int(b)) for a, b in rows)
    assert wrong_matches < matches
    assert inliers > 100 < wrong_inliers


def test_picture_of_something_else_is_refused(cells):
    assert printed(cell_with(cells, "other = ")).split() == ["no", "match", "False"]


def test_tour_ends_with_a_model_to_look_at(cells):
    assert "Model: 8 of 8 photographs" in printed(cell_with(cells, "mm.reconstruct"))
    (output,) = cells[-1]["outputs"]
    assert "index.html" in output["data"]["text/html"]


def test_result_and_figure_show_themselves(cells):
    shown = [output["data"] for cell in cells for output in cell["outputs"] if "data" in output]
    assert any("iframe" in data.get("text/html", "") for data in shown[:1])
    assert any("image/png" in data for data in shown)


def test_notebook_is_kept_without_outputs():
    nbformat = pytest.importorskip("nbformat")
    for cell in nbformat.read(NOTEBOOK, as_version=4)["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
