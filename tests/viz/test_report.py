"""The report: its numbers, its safety against names, its size, the view for notebooks."""

import base64
import dataclasses
import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manymatch import (
    AssociationGraph,
    MatcherConfig,
    Options,
    RelativePose,
    assess,
    estimate_relative_pose,
    merge_graphs,
    pose_error_deg,
    score_pose,
)
from manymatch.estimate import words
from manymatch.estimate.evidence import PartConfidence
from manymatch.geometry.camera import Camera
from manymatch.matcher.match_result import RANK_ONE
from manymatch.viz import overlay, plot_candidates
from manymatch.viz import report as report_module
from manymatch_lab.datasets.synthetic import SceneConfig, make_scene
from tests.oracles.geometry import sampson_squared
from tests.support.match_results import made_result
from tests.support.synthetic_alternatives import with_alternatives

VOID = {"meta", "img", "input", "br", "path", "circle", "line", "rect", "polyline"}


def unpacked(value):
    """Return an array of numbers as a list, as the page's script reads it; None for NaN."""
    if len(value) == 1 and (kind := next(iter(value))) in ("f4", "u1", "u2", "u4"):
        array = np.frombuffer(base64.b64decode(value[kind]), f"<{kind}")
        return [None if np.isnan(number) else number for number in array.tolist()]
    return value


class Page(HTMLParser):
    """Elements, texts and scripts of a page; every element must be closed in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.scripts, self.texts = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open and self.open[-1] == "script":
            self.scripts.append(text)
        elif not (self.open and self.open[-1] == "style"):
            self.texts.append(text)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    @property
    def data(self):
        return json.loads(self.scripts[0], object_hook=unpacked)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def scene():
    return make_scene(SceneConfig(num_points=60, num_outliers=10, num_rows=2), 0)


@pytest.fixture(scope="module")
def estimate(scene):
    found = estimate_relative_pose(scene.graph, scene.camera0, scene.camera1)
    return dataclasses.replace(found, alternatives=())


def photo(width, height, seed=0):
    """Noise, which is what JPEG is worst at."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def confidence(estimate):
    return assess(estimate)


def report(path, scene, estimate, **changes):
    """Write the report of a scene; `changes` are its own arguments and fields of the result."""
    own = {name: changes.pop(name) for name in ("title", "command", "true_pose") if name in changes}
    assert made_result(scene, estimate, **changes).report(path, **own) == path
    return Page(path.read_text(encoding="utf-8"))


def test_focal_lengths_and_threshold_that_were_found(scene, estimate, confidence, tmp_path):
    """The banner and a card say what they are, and the code repeats the search for them."""
    found = dataclasses.replace(
        estimate,
        focal_sd_px=(12.0, 12.0),
        threshold_px=1.61803,
        options=Options(threshold_px="auto"),
        noise_px=0.4,
        noise_sd_px=0.03,
    )
    page = report(
        tmp_path / "report.html",
        scene,
        found,
        confidence=confidence,
        camera_priors=(Camera.unknown(*scene.size), Camera.unknown(*scene.size, 900, 0.05)),
        shared_focal=False,
    )
    focal = f"{scene.camera0.focal:.0f} ± 12 px"
    assert f"Focal length found: {focal} (from the two images)." in page.text
    assert f"{focal} found from the images" in page.text
    assert page.data["threshold"] == 1.61803
    for said in (
        *("focal_sigma=0.5)", "[900, ", "focal_sigma=0.05)", "shared_focal=False"),
        *("threshold 1.62 px", "Threshold 1.6 px chosen automatically", "threshold_px='auto'"),
        "Noise 0.40 ± 0.03 px",
    ):
        assert said in page.text
    plain = report(tmp_path / "plain.html", scene, estimate)
    for absent in ("Focal length", "focal_sigma=", "shared_focal="):
        assert absent not in plain.text


def test_numbers_are_those_of_the_result(scene, estimate, confidence, tmp_path):
    other = estimate_relative_pose(
        scene.graph.up_to_rank(1), scene.camera0, scene.camera1, method="cm"
    )
    true = RelativePose(scene.pose.R, -scene.pose.t)
    page = report(
        tmp_path / "report.html",
        scene,
        estimate,
        images=(photo(*scene.size), photo(*scene.size, 1)),
        confidence=dataclasses.replace(
            confidence,
            verdict="uncertain",
            reason="The matches hardly determine it.",
            rotation=PartConfidence(0.9, 0.0312),
            translation=PartConfidence(0.5, np.inf),
            planar=0.42,
        ),
        timing={"detect": 0.25, "match_it": 1.5, "total": 1.8},
        names=("left.png", "right.png"),
        notes=["The focal length is a guess."],
        rank_one=other,
        true_pose=true,
        command="manymatch match a b",
        config=MatcherConfig.of("embedded", layer=7, seed=11),
    )
    errors = [pose_error_deg(e.pose, true.R, true.t) for e in (estimate, other)]
    for said in (
        "left.png ↔ right.png",
        "Uncertain",
        "The matches hardly determine it.",
        f"{errors[0]:.2f}° from the true pose",
        "The pose is uncertain. The matches hardly determine it. Best guess: camera 1 is turned",
        f"{scene.graph.num_edges} Candidates kept",
        f"{estimate.num_inliers} Consistent with the pose",
        f"{len(estimate.matches)} Resolved matches",
        "±0.031°",
        "unknown the matches do not determine it",
        "42 % of the matches lie on it",
        "1.80 s in all",
        "match it 1.50 s",
        "The focal length is a guess.",
        RANK_ONE,
        f"{errors[1]:.2f}",
        "manymatch match a b",
        '"layer": 7',
        '"seed": 11',
        "Preserve, Then Resolve",
        "threshold 1 px",
    ):
        assert said in page.text
    # R and t can be copied with six digits.
    pre = page.text
    for value in (*estimate.pose.R.ravel(), *estimate.pose.t):
        assert f"{value:.6f}" in pre
    layers = [a["value"] for a in page.all("input")]
    assert layers == ["matches", "candidates", "other1", "none"]
    assert [a["value"] for a in page.all("input") if "checked" in a] == ["matches"]


@pytest.mark.parametrize("far", [1e308, -1e308, 1e160])
def test_extreme_coordinates_are_drawn_outside(tmp_path, far):
    points = np.random.default_rng(0).uniform(0, 600, (50, 2))
    others = points + 5.0
    points[3], others[7, 0] = far, far
    graph = AssociationGraph.from_matches(points, others)
    camera = Camera("PINHOLE", 640, 480, [500.0, 500.0, 320.0, 240.0])
    found = estimate_relative_pose(graph, camera, camera)
    scene = SimpleNamespace(graph=graph, camera0=camera, camera1=camera, size=(640, 480))
    drawn = np.array(report(tmp_path / "report.html", scene, found).data["points"])
    assert np.isfinite(drawn).all()
    assert np.abs(drawn).max() == 1e9
    plot_candidates(graph, (640, 480), (640, 480), tmp_path / "a.png", estimate=found)


def test_file_is_small_repeatable_and_loads_nothing(scene, estimate, tmp_path):
    path = tmp_path / "report.html"
    images = (photo(1500, 1000), photo(300, 500))
    page = report(path, scene, estimate, images=images, names=("a", "b"))
    text = path.read_text(encoding="utf-8")
    report(path, scene, estimate, images=images, names=("a", "b"))
    assert path.read_text(encoding="utf-8") == text
    assert len(text) < 2_000_000  # noise; photographs are a fraction of that
    pictures = page.all("img")
    assert len(pictures) == 2
    for _, attributes in page.elements:
        for name in ("src", "href", "xlink:href", "srcset", "data", "action"):
            assert attributes.get(name, "data:").startswith("data:image/jpeg;base64,") or (
                name not in attributes
            )
    assert page.all("link") == []
    assert set(re.findall(r"https?://[^\s\"'<]*", text)) == {"http://www.w3.org/2000/svg"}
    assert set(re.findall(r"url\([^)]*\)", text)) == {"url(#clip)"}
    assert "@import" not in text
    [policy] = [a["content"] for a in page.all("meta") if "http-equiv" in a]
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "script-src 'sha256-" in policy


NASTY = '</script><script>alert("1")</script><!-- \' " & &amp; \u2028 \u00e9 \u2603 <b>'


def test_names_cannot_break_out(scene, estimate, confidence, tmp_path):
    plain = report(tmp_path / "plain.html", scene, estimate)
    page = report(
        tmp_path / "report.html",
        scene,
        estimate,
        names=(NASTY, "b.jpg"),
        title=NASTY,
        notes=[NASTY],
        config=MatcherConfig(preset=NASTY),
        command=NASTY,
        confidence=dataclasses.replace(confidence, verdict=NASTY, reason=NASTY),
        timing={NASTY: 1.0},
    )
    assert page.data["names"] == [NASTY, "b.jpg"]
    assert len(page.scripts) == len(plain.scripts) == 2
    assert page.scripts[1] == plain.scripts[1]
    assert {tag for tag, _ in page.elements} - {tag for tag, _ in plain.elements} <= {"ul"} | {
        *("thead", "li", "table", "tr", "th", "td")
    }
    # Twice as the title, once as a note: said as it is.
    assert "".join(page.texts).count(NASTY) >= 3


def test_file_name_with_invalid_unicode(scene, estimate, tmp_path):
    name = b"caf\xe9.jpg".decode("utf-8", "surrogateescape")
    page = report(tmp_path / "report.html", scene, estimate, names=(name, "b"))
    assert "caf?.jpg ↔ b" in page.text


def test_failed_estimate(scene, tmp_path):
    failed = estimate_relative_pose(scene.graph.head(3), scene.camera0, scene.camera1)
    page = report(
        tmp_path / "r.html", scene, failed, graph=scene.graph.head(3), true_pose=scene.pose
    )
    assert page.text.count(failed.failure) == 1
    assert "true pose" not in page.text
    for absent in ("Residuals", "Parallax", "R and t", "first choice"):
        assert absent not in page.text
    assert page.data["residual"] == [None] * 3
    assert page.data["lines"] == [[], []]
    assert page.data["fundamental"] is None
    assert [a["value"] for a in page.all("input") if "checked" in a] == ["candidates"]


def test_no_candidates_and_no_keypoints(scene, tmp_path):
    nothing = scene.graph.head(0)
    failed = estimate_relative_pose(nothing, scene.camera0, scene.camera1)
    page = report(tmp_path / "a.html", scene, failed, graph=nothing)
    assert "0 Candidates kept" in page.text
    assert page.data["points"] == [[], []]
    empty = AssociationGraph(np.empty((0, 2)), np.empty((0, 2)), np.empty((0, 2), dtype=int))
    camera = Camera.from_matrix(np.diag([500.0, 500.0, 1.0]))
    failed = estimate_relative_pose(empty, camera, camera)
    page = report(tmp_path / "b.html", scene, failed, graph=empty, camera0=camera, camera1=camera)
    assert "0 keypoints in image 0 and 0 in image 1" in page.text


def test_graph_without_ranks_and_similarities(scene, tmp_path):
    graph = AssociationGraph(scene.graph.points0, scene.graph.points1, scene.graph.edges)
    estimate = estimate_relative_pose(graph, scene.camera0, scene.camera1)
    page = report(tmp_path / "report.html", scene, estimate, graph=graph)
    assert page.data["rank"] is None
    assert page.data["similarity"] is None
    assert "first choice" not in page.text


def test_counts_by_source(scene, estimate, tmp_path):
    one = report(tmp_path / "one.html", scene, estimate)
    assert "Sources" not in one.text
    assert "by source" not in one.text
    assert (one.data["source"], one.data["sources"]) == (None, [])
    graph = merge_graphs([scene.graph, scene.graph.head(30)], ["all <b>", "few"])
    found = estimate_relative_pose(graph, scene.camera0, scene.camera1)
    page = report(tmp_path / "two.html", scene, found, graph=graph)
    states = overlay.edge_states(graph, found)
    for number, name in enumerate(graph.source_names):
        own = graph.source == number
        counts = [np.sum(own & (states >= least)) for least in (0, overlay.CONSISTENT)]
        counts.append(np.sum(own & (states == overlay.CHOSEN)))
        row = " ".join(f"{int(n):,}" for n in counts)
        assert f"{name} {row} {found.source_trust[number]:.2f}" in page.text
    assert [name for name, _ in page.data["sources"]] == ["all <b>", "few"]
    shown = overlay.shown_edges(states, graph.num_edges)
    assert page.data["source"] == graph.source[shown].tolist()
    assert "Matches by source" in page.text


def test_residuals_are_in_the_scale_of_the_threshold(scene, estimate):
    found = overlay.residuals_px(scene.graph, estimate.pose, scene.camera0, scene.camera1)
    x0 = scene.camera0.unproject(scene.graph.points0)
    x1 = scene.camera1.unproject(scene.graph.points1)
    pose = estimate.pose
    slow = [np.sqrt(sampson_squared(x0[i], x1[j], pose.R, pose.t)) for i, j in scene.graph.edges]
    focal = 2.0 / (1.0 / scene.camera0.focal + 1.0 / scene.camera1.focal)
    np.testing.assert_allclose(found, np.array(slow) * focal, rtol=1e-9, atol=1e-9)
    assert np.all(found[estimate.inliers] <= estimate.options.threshold_px)


def test_states_and_indices_are_those_of_the_graph(scene, estimate, tmp_path):
    page = report(tmp_path / "report.html", scene, estimate)
    content, graph = page.data, scene.graph
    ids = [np.array(side) for side in content["ids"]]
    edges = np.stack([ids[k][content["edges"][k]] for k in (0, 1)], axis=1)
    np.testing.assert_array_equal(edges, graph.edges)
    chosen = {tuple(pair) for pair in estimate.matches.tolist()}
    for edge, state, inlier in zip(edges.tolist(), content["state"], estimate.inliers, strict=True):
        assert state == (2 if tuple(edge) in chosen else int(inlier))
    pairs = np.stack([ids[k][content["layers"][0]["pairs"][k]] for k in (0, 1)], axis=1)
    assert {tuple(pair) for pair in pairs.tolist()} == chosen
    points = np.array(content["points"][1]).reshape(-1, 2)
    np.testing.assert_allclose(points, graph.points1[ids[1]], atol=0.051)
    np.testing.assert_allclose(content["similarity"], graph.similarity, atol=6e-4)
    assert content["rank"] == graph.rank.tolist()


def test_probabilities_are_those_of_the_matches(scene, estimate, tmp_path):
    page = report(tmp_path / "report.html", scene, estimate)
    known = dict(
        zip(map(tuple, estimate.matches.tolist()), estimate.match_probability, strict=True)
    )
    assert known
    for edge, shown in zip(scene.graph.edges.tolist(), page.data["probability"], strict=True):
        expected = known.get(tuple(edge))
        assert (shown is None) == (expected is None)
        assert expected is None or abs(shown - expected) <= 5.1e-4
    mean = words.probability_text(estimate.match_probability.mean())
    assert f"A match {mean} " in page.text
    plain = estimate_relative_pose(scene.graph, scene.camera0, scene.camera1, "hcm-mcm")
    page = report(tmp_path / "plain.html", scene, plain)
    assert page.data["probability"] is None
    assert "mean probability" not in page.text


def test_chosen_candidates_are_drawn_first(monkeypatch, scene, estimate, tmp_path):
    for extra in (3, -5):
        most = len(estimate.matches) + extra
        size = dataclasses.replace(report_module._FILE, edges=most)
        monkeypatch.setattr(report_module, "_FILE", size)
        page = report(tmp_path / "report.html", scene, estimate, rank_one=estimate)
        drawn = min(most, len(estimate.matches))
        assert len(page.data["state"]) == most
        assert page.data["state"].count(2) == drawn
        own, other = (len(layer["pairs"][0]) for layer in page.data["layers"])
        assert own == drawn
        assert 0 < other <= most
        assert f"The pictures show {most} of the candidates." in page.text


@pytest.mark.parametrize(
    ("verdict", "kind", "headline"),
    [
        ("solved", "good", "Camera 1 is turned"),
        ("likely", "good", "Camera 1 is turned"),
        ("uncertain", "doubt", "The pose is uncertain."),
        ("ambiguous", "doubt", "More than one pose explains the matches."),
        ("degenerate", "doubt", "The pose is not fully determined."),
    ],
)
def test_headline_follows_the_verdict(
    scene, estimate, confidence, tmp_path, verdict, kind, headline
):
    judged = dataclasses.replace(confidence, verdict=verdict, reason="It is so.")
    page = report(tmp_path / "r.html", scene, estimate, confidence=judged)
    [said] = [a for a in page.all("h2") if "said" in a.get("class", "")]
    assert said["class"] == f"said {kind}"
    start = page.text.index(verdict.capitalize())
    after = page.text[start:].partition(" ")[2]
    assert after.startswith(headline)
    assert "It is so." in page.text
    assert ("Best guess: camera 1 is turned" in page.text) == (kind != "good")
    assert ("Pose, a best guess" in page.text) == (kind != "good")


def embedded(page):
    """Return the photographs of a page as Pillow images."""
    Image = pytest.importorskip("PIL.Image")
    data = [a["src"].partition("base64,")[2] for a in page.all("img")]
    return [Image.open(io.BytesIO(base64.b64decode(text))) for text in data]


def test_photographs_are_embedded_at_the_size_of_a_screen(scene, estimate, tmp_path):
    large = np.zeros((2250, 3000, 3), np.uint8)
    large[1200:, :1000] = (200, 40, 40)
    page = report(tmp_path / "r.html", scene, estimate, images=(large, photo(300, 200)))
    pictures = embedded(page)
    assert [picture.size for picture in pictures] == [(1600, 1200), (300, 200)]
    # Nothing is shifted: the corner of the red part is where it was.
    pixels = np.asarray(pictures[0], int)[..., 0] > 100
    assert pixels[642:, :531].all()
    assert not pixels[:638].any()
    assert not pixels[:, 536:].any()
    assert page.data["sizes"] == [[3000, 2250], [300, 200]]
    styles = [a["style"] for a in page.all("div") if a.get("class") == "panel"]
    assert styles[1].startswith("aspect-ratio:300/200;")
    assert "3000 × 2250, here 1600 × 1200" in page.text
    assert "300 × 200, here" not in page.text


def frame(text):
    """Return the attributes of the frame in which a notebook shows a result, and its page."""
    outer = Page(text)
    [(tag, attributes)] = outer.elements
    assert (tag, outer.text) == ("iframe", "")
    return attributes, Page(attributes["srcdoc"])


def view(scene, estimate, **changes):
    return made_result(scene, estimate, **changes)._repr_html_()


def test_notebook_shows_the_stage_in_its_own_frame(scene, estimate, confidence):
    text = view(scene, estimate, confidence=confidence, names=("left.png", "right.png"))
    attributes, page = frame(text)
    assert attributes["sandbox"] == "allow-scripts"
    assert attributes["title"] == "left.png ↔ right.png"
    assert "Camera 1 is turned" in page.text
    assert f"Matches {len(estimate.matches)}" in page.text
    assert len(page.data["state"]) == scene.graph.num_edges
    assert "embedded" in page.all("body")[0]["class"]
    [policy] = [a["content"] for a in page.all("meta") if "http-equiv" in a]
    assert policy.startswith("default-src 'none'; img-src data:;")
    for absent in ("Residuals", "Reproduce and cite", "R and t"):
        assert absent not in page.text
    failed = estimate_relative_pose(scene.graph.head(3), scene.camera0, scene.camera1)
    _, page = frame(view(scene, failed, graph=scene.graph.head(3)))
    assert failed.failure in page.text


def test_notebook_output_is_small():
    """For large images and many candidates."""
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 3000, (6000, 2))
    edges = np.column_stack([np.repeat(np.arange(6000), 2), rng.integers(0, 6000, 12000)])
    graph = AssociationGraph(points, points[::-1], np.unique(edges, axis=0))
    camera = Camera("PINHOLE", 4000, 3000, [3000.0, 3000.0, 2000.0, 1500.0])
    found = estimate_relative_pose(graph, camera, camera, options=Options(max_iterations=1000))
    image = np.repeat(np.repeat(photo(400, 300), 10, axis=0), 10, axis=1)
    scene = SimpleNamespace(graph=graph, camera0=camera, camera1=camera)
    # Two poses share the number of candidates.
    for number, candidates in ((0, 2000), (3, 1000)):
        several = with_alternatives(found, (0.1,) * number)
        judged = dataclasses.replace(assess(several), verdict="ambiguous")
        text = view(scene, several, images=(image, image), confidence=judged)
        assert len(text) < 1_000_000
        _, page = frame(text)
        assert [picture.size for picture in embedded(page)] == [(900, 675)] * 2
        assert len(page.data["state"]) == candidates


@given(st.text(st.characters(), max_size=40))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_survives_in_page_and_notebook(scene, estimate, confidence, tmp_path, text):
    named = {"names": (text, NASTY), "confidence": confidence}
    shown = view(scene, estimate, **named)
    attributes, cell = frame(shown)
    assert NASTY in attributes["title"]
    shown.encode("utf-8")
    for page in (report(tmp_path / "r.html", scene, estimate, **named), cell):
        assert page.data["names"] == [text, NASTY]
        assert len(page.scripts) == 2
        assert not re.search(r"[<>&\u2028\u2029]", page.scripts[0])


def test_path_of_the_report_is_checked(scene, estimate):
    with pytest.raises(ValueError, match=r"^path must be"):
        made_result(scene, estimate).report("")


def test_without_pillow_the_error_says_what_to_install(scene, estimate, tmp_path, monkeypatch):
    class NotInstalled:
        def find_spec(self, name, *_):
            if name == "PIL":
                raise ModuleNotFoundError("No module named 'PIL'", name="PIL")

    monkeypatch.setattr(sys, "meta_path", [NotInstalled(), *sys.meta_path])
    for name in ("PIL", "PIL.Image"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install \"manymatch\[images\]\""):
        report(tmp_path / "r.html", scene, estimate, images=(photo(9, 9),) * 2)
    report(tmp_path / "plain.html", scene, estimate)


def test_importing_the_report_imports_no_optional_package():
    code = (
        "import sys, manymatch.viz.report; sys.exit(bool({'PIL', 'matplotlib', 'cv2', "
        "'torch', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)  # noqa: S603 - fixed text
    assert done.returncode == 0


def test_every_pose_has_its_own_matches_lines_and_numbers(scene, estimate, confidence, tmp_path):
    several = with_alternatives(estimate)
    judged = dataclasses.replace(assess(several), verdict="ambiguous", reason="It is so.")
    page = report(tmp_path / "r.html", scene, several, confidence=judged)
    content, graph = page.data, scene.graph
    assert len(content["alternatives"]) == 2
    ids = [np.array(side) for side in content["ids"]]
    cameras = scene.camera0, scene.camera1
    said = [f"right with probability {share} %." for share in (57, 30, 12)]
    for k, (drawn, other) in enumerate(
        zip(content["alternatives"], several.alternatives, strict=True), start=1
    ):
        pairs = np.stack([ids[side][drawn["pairs"][side]] for side in (0, 1)], axis=1)
        assert pairs.tolist() == other.matches.tolist()
        residual = overlay.residuals_px(graph, other.model, *cameras)
        np.testing.assert_allclose(
            np.array(drawn["residual"], float), residual, atol=0.0051, equal_nan=True
        )
        score = score_pose(graph, *cameras, other.model, several.options)
        chosen = {tuple(match) for match in other.matches.tolist()}
        for edge, state, inlier in zip(
            graph.edges.tolist(), drawn["state"], score.inliers, strict=True
        ):
            assert state == (2 if tuple(edge) in chosen else int(inlier))
        E = other.model.essential()
        points = overlay.drawable(graph.points0[ids[0]])
        lines = overlay.epipolar_lines(points, E, *cameras, tuple(content["sizes"][1]))
        # Both ends of every line are on the line of the page's fundamental matrix.
        F = np.reshape(drawn["fundamental"], (3, 3))
        for point, line in zip(points, lines, strict=True):
            a, b, c = F @ (*point, 1.0)
            for x, y in np.reshape(line, (-1, 2)):
                assert abs(a * x + b * y + c) / np.hypot(a, b) < 0.1
        assert drawn["fundamental"] != content["fundamental"]
        assert words.describe_pose(other.model) in content["said"][k]
        assert said[k] in content["said"][k]
        assert content["counts"][k] == len(other.matches)
        assert f"{other.model.R[0, 0]:.6f}" in page.text
    assert said[0] in content["said"][0]
    assert content["said"][0] in page.text
    buttons = [a for a in page.all("input") if a["name"] == "pose"]
    assert [(a["value"], "checked" in a) for a in buttons] == [
        ("0", True), ("1", False), ("2", False),
    ]  # fmt: skip
    assert "Chosen pose 57 % Alternative 1 30 % Alternative 2 12 %" in page.text
    shown = [a for tag, a in page.elements if a.get("data-pose") and "hidden" not in a]
    assert {a["data-pose"] for a in shown} == {"0"}
    assert "More than one pose explains the matches. It is so." in page.text
    assert "Pose Chosen pose" in page.text
    alone = report(tmp_path / "alone.html", scene, estimate, confidence=confidence)
    assert alone.data["alternatives"] == []
    assert "Alternative" not in alone.text
    assert [a["name"] for a in alone.all("input")] == ["layer"] * 3


def test_size_is_bounded_for_any_number_of_poses(monkeypatch, scene, estimate, tmp_path):
    size = dataclasses.replace(report_module._FILE, edges=scene.graph.num_edges)
    monkeypatch.setattr(report_module, "_FILE", size)
    sizes = []
    for number in (0, 1, 3, 12):
        several = with_alternatives(estimate, (0.5 / max(number, 1),) * number)
        page = report(tmp_path / "r.html", scene, several, confidence=assess(several))
        drawn = min(number, size.alternatives)
        assert len(page.data["alternatives"]) == drawn
        assert len(page.data["state"]) == scene.graph.num_edges // (1 + drawn)
        sizes.append(len(page.scripts[0]))
        unseen = "9 less probable poses are not shown." in page.text
        assert unseen == (number == 12)
    # Fewer candidates still have nearly the same keypoints.
    assert max(sizes) < 2 * sizes[0]
    assert sizes[3] < 1.01 * sizes[2]
