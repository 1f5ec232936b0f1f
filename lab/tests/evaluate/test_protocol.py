"""The paper's protocol: its numbers, and in which points a run differs from it."""

import dataclasses

import pytest

from manymatch.features.feature_config import FEATURE_PRESETS
from manymatch.matcher.config import MatcherConfig
from manymatch_lab.evaluate.protocol import (
    PAPER,
    RecordedRun,
    assumptions,
    differences,
    protocol_sentence,
)
from manymatch_lab.evaluate.run import PaperRun, RunConfig, run_set
from tests.support.synthetic_runs import SmallGraphs


def recorded(name="scannet1500", pairs=1_500, preset="dinov3", config=None, papers=None, **source):
    """A run on a set of images, by default as the paper has it."""
    papers = papers or PaperRun()
    source = {
        "set": name,
        "representation": preset,
        "features": FEATURE_PRESETS[preset].to_dict() | source.pop("features", {}),
        "operator": "mutual",
        "longest": [None, 0 if name.startswith("metu") else None],
        "pair_count": 1_500,
        **source,
    }
    done = (config or papers.config).to_dict()
    return RecordedRun(source, done, pairs, papers.config.to_dict(), papers.presets)


def test_the_numbers_are_those_of_the_paper():
    config = MatcherConfig.paper()
    features, association = config.sources[0].features, config.sources[0].association
    options = config.options
    assert (config.preset, config.method, PAPER.seeds) == ("dinov3", "hcm-mcm", 5)
    assert (features.detector, features.descriptor) == ("superpoint", "dinov3-vitl16")
    assert (features.layer, features.debias, features.max_keypoints) == (19, 200, 2048)
    assert (features.longest, features.nms_radius) == (1024, None)
    assert (features.resize, features.precision) == ("paper", "float32")
    assert (association.k, association.operator) == (5, "mutual")
    assert (association.max_edges, association.gms, association.keep) == (2048, True, 1024)
    assert (options.threshold_px, options.q, options.delta) == (1.0, 0.3, 0.01)
    assert (options.min_iterations, options.max_iterations) == (1_000, 100_000)
    assert (options.confidence, options.safety, options.pool_size) == (0.9999, 3.0, 100)
    assert options.guidance == 0.0
    # Appendix "Experimental Protocols": 1,491 evaluable pairs of MegaDepth-1500.
    assert list(PAPER.pairs.values()) == [1500, 1491, 1500, 1500, 1382, 1208]


def test_another_precision_and_another_resize_are_differences():
    config = {"precision": "bfloat16", "resize": "exact"}
    run = recorded(features=config, preset="dinov3")
    named = {**run.source, "preset": "dinov3", "representation": "dinov3-bfloat16"}
    texts = differences([dataclasses.replace(run, source=named)])
    assert texts == ["resize exact instead of paper", "precision bfloat16 instead of float32"]


def test_the_paper_itself_does_not_differ():
    runs = [recorded(name, pairs) for name, pairs in PAPER.pairs.items()]
    assert differences(runs, complete=True) == []
    assert differences(runs[:1]) == []
    assert protocol_sentence([]) == "This is the paper's protocol."


def test_it_is_called_the_papers_only_where_that_is_known():
    known = recorded(paper_list=True)
    assert (differences([known]), assumptions([known])) == ([], [])
    # 1,500 pairs of another list.
    other = recorded(paper_list=False)
    assert differences([other]) == ["another list of pairs of scannet1500 than the paper's"]
    unknown = recorded("metu-cc", 1_382)
    assert differences([unknown]) == []
    assumed = assumptions([unknown])
    assert assumed == ["the pairs of metu-cc are the published ones"]
    assert protocol_sentence([], assumed) == (
        "No difference from the paper's protocol is known. Assumed: the pairs of metu-cc are the "
        "published ones."
    )
    system = recorded(paper_list=True, assumed=["XoFTR gets images at working size"])
    assert assumptions([system]) == ["XoFTR gets images at working size"]


def test_directions_and_weights_that_differ_are_named():
    fewer = dataclasses.replace(recorded(paper_list=True), debiased=96)
    assert differences([fewer]) == ["96 directions of position removed instead of 200"]
    file = "weights model.safetensors instead of dinov3_vitl16_pretrain_lvd1689m-8aa4cbdd.pth"
    assert differences([recorded(other_weights=[file])]) == [file]
    assert differences([recorded(features={"sampling": "paper"})]) == []


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        ({"preset": "embedded"}, ["preset embedded instead of dinov3"]),
        ({"features": {"layer": 18}}, ["layer 18 instead of 19"]),
        ({"features": {"debias": 0}}, ["debias 0 instead of 200"]),
        ({"features": {"nms_radius": 3}}, ["nms_radius 3 instead of 4"]),
        # The detector's own radius, and weights wherever they are, are no difference.
        ({"features": {"nms_radius": 4, "weights": "/data/dinov3.pth"}}, []),
        ({"features": {"weights": "random"}}, ["weights random"]),
        ({"operator": "union"}, ["operator union instead of mutual"]),
        ({"longest": [None, 0]}, ["longest1 0 of scannet1500"]),
        ({"name": "metu-cc", "pairs": 1_382, "longest": [None, None]},
         ["longest1 none of metu-cc"]),
        ({"pairs": 20}, ["20 pairs of scannet1500 instead of 1,500"]),
        ({"name": "megadepth1500"}, ["1,500 pairs of megadepth1500 instead of 1,491"]),
        ({"name": "fox", "pairs": 7, "pair_count": 40},
         ["7 pairs of fox instead of 40", "fox instead of the paper's sets"])
    ]
)  # fmt: skip
def test_features_sets_and_pairs_that_differ(changes, texts):
    assert differences([recorded(**changes)]) == texts


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        ({"estimator": "hcm"}, ["method hcm instead of hcm-mcm"]),
        ({"seeds": 1}, ["seeds 1 instead of 5"]),
        ({"association": dataclasses.replace(PAPER.association, k=3, gms=False, keep=None)},
         ["k 3 instead of 5", "gms off instead of on", "keep none instead of 1,024"]),
        ({"options": PAPER.options.replace(max_iterations=20_000, threshold_px=1.5)},
         ["threshold_px 1.5 instead of 1", "max_iterations 20,000 instead of 100,000"]),
        ({"options": PAPER.options.replace(guidance=0.5)}, ["guidance 0.5 instead of 0"])
    ]
)  # fmt: skip
def test_settings_that_differ(changes, texts):
    config = dataclasses.replace(PaperRun().config, **changes)
    assert differences([recorded(config=config)]) == texts
    sentence = protocol_sentence(texts)
    assert sentence == f"Differs from the paper's protocol in: {', '.join(texts)}."


def test_candidates_that_are_not_of_images():
    files = RecordedRun(
        {"set": "fox", "representation": "effnet"}, PaperRun().config.to_dict(), 3,
        PaperRun().config.to_dict()
    )  # fmt: skip
    assert differences([files])[0] == "candidates of effnet instead of those of dinov3"
    scenes = dataclasses.replace(files, source={"set": "x", "scene": {}})
    assert differences([scenes])[0] == "synthetic candidates instead of those of dinov3"
    # A source of the user's own says what it likes.
    own = dataclasses.replace(files, source={"what": 1})
    assert differences([own])[-1] == "another set instead of the paper's sets"


def test_sets_and_presets_that_a_comparison_lacks():
    papers = PaperRun(presets=("dinov3", "dinov2"))
    runs = [recorded(papers=papers), recorded("metu-cc", 1_382, papers=papers)]
    assert differences(runs) == []
    assert differences(runs, complete=True) == [
        "presets without dinov2",
        "sets without megadepth1500, navi-multi, navi-wild, metu-cs",
    ]


def test_the_summary_of_a_run_says_it(tmp_path):
    config = RunConfig("hcm", PAPER.association, PAPER.options.replace(max_iterations=2_000), 2)
    papers = {"a": PaperRun(dataclasses.replace(config, seeds=5))}
    found = run_set(SmallGraphs(1), {"a": config}, tmp_path, paper=papers)["a"]
    summary = (tmp_path / "a" / "summary.json").read_text()
    assert found.summary(papers["a"])["differs_from_paper"][1] == "seeds 2 instead of 5"
    assert '"seeds 2 instead of 5"' in summary
    assert "method" not in found.summary(papers["a"])["differs_from_paper"][0]
    assert "method hcm instead of hcm-mcm" in found.summary()["differs_from_paper"]
