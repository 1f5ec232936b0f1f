"""Presets and configurations: printable, written to TOML and read back, unknown keys refused."""

import re
import subprocess
import sys
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manymatch._validate import METHODS
from manymatch.associate.candidates import Association
from manymatch.features.device import default_preset, works_now
from manymatch.features.feature_config import FEATURE_PRESETS
from manymatch.matcher.config import PRESETS, MatcherConfig
from manymatch.matcher.matcher import Matcher
from manymatch.options import AUTO_PARTS, Options


def test_presets_are_those_of_the_paper():
    assert set(PRESETS) == {
        "classic", "embedded", "dinov3", "dinov2", "vjepa2.1", "siglip2", "superpoint", "open",
        "fast", "fused", "best",
    }  # fmt: skip
    dinov3 = FEATURE_PRESETS["dinov3"]
    assert (dinov3.descriptor, dinov3.layer, dinov3.debias) == ("dinov3-vitl16", 19, 200)
    assert FEATURE_PRESETS["dinov2"].layer == 24
    assert {FEATURE_PRESETS[name].debias for name in FEATURE_PRESETS if name != "dinov3"} == {0}
    assert not FEATURE_PRESETS["classic"].needs_torch
    assert FEATURE_PRESETS["superpoint"].needs_torch
    common = MatcherConfig.of("dinov2")
    assert common.sources[0].association == Association(5, "mutual", 2048, None, 1024, "nearest")
    assert common.options == Options()
    assert common.method == MatcherConfig().method == "auto"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("gms", [None, True, False])
def test_method_decides_about_the_filter_by_default(method, gms):
    part = Association(k=3, gms=gms, keep=77)
    decided = part.for_method(method)
    if gms is not None:
        assert decided == part
    elif method == "auto":
        assert decided == Association(k=3, gms=False, keep=None)
    else:
        assert decided == Association(k=3, gms=True, keep=77)
    assert decided.for_method("cm") == decided.for_method("auto") == decided


def test_sections_of_a_file_hold_for_all_sources(tmp_path):
    path, changes = tmp_path / "a.toml", {"gms": True, "guidance": 0.5, "method": "hcm-mcm"}
    estimation = 'method = "hcm-mcm"\nguidance = 0.5\n'
    path.write_text(f'preset = "classic"\n[association]\ngms = true\n[estimation]\n{estimation}')
    assert MatcherConfig.load(path) == MatcherConfig.of("classic", **changes)
    path.write_text("[features]\nmax_keypoints = 100\n")
    assert MatcherConfig.load(path).method == "auto"


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_survives_a_file(tmp_path, preset):
    config = MatcherConfig.of(preset, max_edges=None, longest=0, seed=2**63)
    config.save(tmp_path / "a.toml")
    assert MatcherConfig.load(tmp_path / "a.toml") == config
    assert MatcherConfig.of(str(tmp_path / "a.toml")) == config
    assert MatcherConfig.of(tmp_path / "a.toml", k=2).sources[0].association.k == 2
    assert str(config) == (tmp_path / "a.toml").read_text()
    assert MatcherConfig.from_dict(config.to_dict()) == config
    content = tomllib.loads(config.to_toml())
    assert list(content) == ["preset", "sources", "estimation"]
    assert [one["name"] for one in content["sources"]] == [one.name for one in config.sources]


@given(
    st.builds(
        dict,
        k=st.integers(1, 40),
        keep=st.none() | st.integers(0, 10**6),
        operator=st.sampled_from(["mutual", "oneway", "union"]),
        gms=st.none() | st.booleans(),
        threshold=st.none() | st.floats(0, 1e6),
        longest=st.integers(0, 65_536),
        weights=st.none() | st.text(min_size=1).filter(lambda text: text != "none"),
        confidence=st.floats(1e-9, 1 - 1e-9),
        threshold_px=st.just("auto") | st.floats(1e-9, 1e9),
        method=st.sampled_from(METHODS),
        disable=st.lists(st.sampled_from(list(AUTO_PARTS)), max_size=4),
        seed=st.integers(0, 2**64 - 1),
    )
)
def test_any_setting_survives_toml(settings):
    config = MatcherConfig.of("classic", **settings)
    assert MatcherConfig.from_dict(tomllib.loads(config.to_toml())) == config


def test_settings_by_keyword():
    changes = {"layer": 12, "debias": 0, "k": 3, "threshold_px": 2, "method": "mcm"}
    config = MatcherConfig.of("dinov3", options=Options(seed=4), **changes)
    features, association = config.sources[0].features, config.sources[0].association
    assert (features.layer, features.debias, association.k) == (12, 0, 3)
    assert config.options == Options(seed=4, threshold_px=2.0)
    assert config.method == "mcm"
    assert MatcherConfig.of(config) == config
    assert MatcherConfig.of("classic", options={"seed": 9}).options.seed == 9


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"preset": "dino"}, "preset must be one of .*did you mean 'dinov"),
        ({"preset": 3}, "preset must be one of .* or a MatcherConfig, got 3"),
        ({"preset": "missing.toml"}, "there is no such file"),
        ({"kk": 3}, "settings must be among .*got 'kk'"),
        ({"k": 0}, "k must be"),
        ({"k": True}, "k must be"),
        ({"operator": "both"}, "operator must be"),
        ({"gms": 1}, "gms must be"),
        ({"keep": -1}, "keep must be"),
        ({"options": 3}, "options must be"),
        ({"options": {"sed": 3}}, "sed is not a field"),
        ({"max_keypoints": 0}, "max_keypoints must be"),
        ({"layer": 3}, "layer must be left out"),
        ({"precision": "bfloat16"}, "precision must be left out"),
        ({"resize": "naive"}, "resize must be"),
        ({"precision": "double"}, "precision must be"),
        ({"weights": ""}, "weights must be"),
        ({"norm": "yes"}, "norm must be"),
        ({"longest": 10**6}, "longest must be"),
        ({"detector": ""}, "detector must be"),
        ({"threshold": float("nan")}, "threshold must be"),
        ({"threshold_px": "wide"}, 'threshold_px must be a number .* or "auto", got .wide.'),
    ],
)
def test_bad_settings_are_named(settings, words):
    settings = {"preset": "classic", **settings}
    with pytest.raises(ValueError, match=words):
        MatcherConfig.of(settings.pop("preset"), **settings)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("preset = 'classic'\n[feature]\n", "configuration must have the sections"),
        ('source = ["classic"]', "configuration must have the sections features, .*sources"),
        ("[features]\ndetectr = 'sift'\n", "features must have fields among .*did you mean"),
        ("[association]\nseed = 1\n", "association must have fields"),
        ("[estimation]\nk = 1\n", "estimation must have fields"),
        ("[estimation]\nthreshold_px = 'none'\n", "threshold_px must be a number"),
        ("[estimation]\nthreshold_px = true\n", "threshold_px must be a number"),
        ('[estimation]\nmethod = ["auto"]', "method must be one of"),
        ("preset = 'x'\n", "preset must be one of"),
        ('preset = ["classic"]', "preset must be one of"),
        ("preset = {a = 1}", "preset must be one of"),
        ('preset = "../x"\nsources = ["classic", "embedded"]', "preset must be one of classic"),
        ('[[sources]]\npreset = "classic"\nmatcher = "os.system"', "matcher must be one of"),
        ("features = []", "features must be a table of fields"),
        ('[features]\ndetector = ["sift"]', "detector"),
        ("a = " + "[" * 5000, "recursion"),
        ("a = " + "{a = " * 5000, "recursion"),
        ("[" + ".".join(["a"] * 5000) + "]", "more than .* 1,000 dots"),
        ("a = 1\n" + "#" * 60_000, "more than 50,000 characters"),
        ("not toml at all", "a configuration in TOML"),
        ("", "it is empty"),
        ("preset = '\xff'", "UTF-8"),
    ],
)
def test_bad_file_is_one_sentence(tmp_path, text, words):
    path = tmp_path / "bad.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"^path must be a configuration in TOML") as caught:
        MatcherConfig.load(path)
    assert re.search(words, str(caught.value))
    assert "bad.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("preset", "changes", "left_out", "says"),
    [
        ("embedded", {"detector": "xfeat", "descriptor": "native"}, {"layer": None},
         'layer=10 of the preset "embedded" is left out: it was chosen for the descriptor '
         "efficientnet-lite0."),
        ("dinov3", {"descriptor": "native"}, {"layer": None, "debias": 0},
         'layer=19, debias=200 of the preset "dinov3" are left out: they were chosen for'),
        # Blocks of one backbone are not those of another.
        ("dinov3", {"descriptor": "efficientnet-lite0"}, {"layer": None, "debias": 0}, "layer=19"),
        ("dinov3", {"descriptor": "efficientnet-lite0", "layer": 10}, {"debias": 0},
         'debias=200 of the preset "dinov3" is left out'),
    ],
)  # fmt: skip
def test_settings_chosen_for_another_descriptor_are_left_out(
    tmp_path, preset, changes, left_out, says
):
    config = MatcherConfig.of(preset, **changes)
    plain = FEATURE_PRESETS[preset].to_dict()
    assert config.sources[0].features.to_dict() == {**plain, **left_out, **changes}
    (note,) = config.notes
    assert note.startswith(says)
    assert Matcher(config).notes == [note]
    # The same by a file with a preset and changes, and by changes of a file.
    lines = [f"{name} = {value!r}" for name, value in changes.items()]
    (tmp_path / "a.toml").write_text(f"preset = {preset!r}\n[features]\n" + "\n".join(lines))
    read = MatcherConfig.load(tmp_path / "a.toml")
    assert (read, read.notes) == (config, (note,))
    MatcherConfig.of(preset).save(tmp_path / "b.toml")
    changed = MatcherConfig.of(tmp_path / "b.toml", **changes)
    assert (changed, changed.notes) == (config, (note,))
    config.save(tmp_path / "c.toml")
    again = MatcherConfig.load(tmp_path / "c.toml")
    assert (again, again.notes) == (config, ())


def test_settings_of_a_detector_are_left_out_with_it():
    own = MatcherConfig.of("embedded", nms_radius=3, threshold=0.5, precision="float16")
    assert own.notes == ()
    config = MatcherConfig.of(own, detector="sift")
    features = config.sources[0].features
    assert (features.nms_radius, features.threshold, features.precision) == (None, None, "float16")
    assert config.notes[0].startswith("nms_radius=3, threshold=0.5 of the preset")
    features = MatcherConfig.of(own, descriptor="native", threshold=0.2).sources[0].features
    assert (features.threshold, features.precision) == (0.2, "float32")
    assert MatcherConfig.of(own, detector="xfeat", descriptor="efficientnet-lite0") == own


@pytest.mark.parametrize("given", [{"layer": 3}, {"debias": 5}, {"precision": "float16"}])
def test_given_setting_that_does_not_apply_is_refused(tmp_path, given):
    ((name, value),) = given.items()
    with pytest.raises(ValueError, match=f"^{name} must be left out"):
        MatcherConfig.of("dinov3", descriptor="native", **given)
    text = f'preset = "dinov3"\n[features]\ndescriptor = "native"\n{name} = {value!r}\n'
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(ValueError, match=f"{name} must be left out"):
        MatcherConfig.load(tmp_path / "a.toml")


def test_default_preset_says_why(monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    name, sentence = default_preset()
    assert name == "classic"
    assert "onnxruntime is not installed" in sentence
    # Without OpenCV no preset works.
    assert works_now() == ""
    monkeypatch.undo()
    monkeypatch.setattr("manymatch.features.weights.can_download", lambda _: True)
    assert default_preset()[0] == MatcherConfig.of().preset == "fused"
    assert MatcherConfig.of().notes == (default_preset()[1],)
    # A setting of one source is none of several.
    assert MatcherConfig.of(detector="sift", descriptor="sift").preset == "embedded"
    assert MatcherConfig.of(k=3).preset == "fused"
    assert MatcherConfig.of("embedded").notes == ()


def test_making_a_configuration_loads_nothing():
    """Names are checked against the registry: no matcher is made and torch is not imported."""
    code = (
        "import sys\n"
        "from manymatch import MatcherConfig\n"
        "from manymatch.features import registry\n"
        "from manymatch.matcher import config\n"
        "registry.load_matcher = config.load_matcher = None\n"
        "for name in config.PRESETS: MatcherConfig.of(name, k=3).needs_torch\n"
        "print(sorted({'torch', 'cv2', 'kornia', 'transformers'} & set(sys.modules)))\n"
    )
    done = subprocess.run(  # noqa: S603 - fixed arguments
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
