"""Generated pages and pictures of the documentation."""

import dataclasses
import re

import numpy as np
import pytest
import typer

import manymatch as mm
from manymatch.cli.app import COMMANDS, app
from manymatch.options import AUTO_PARTS, Options
from tools.site import pages


def test_page_of_commands_has_every_command_with_its_flags():
    text = pages.commands_page()
    headings = re.findall(r"^## manymatch (\S+)$", text, re.MULTILINE)
    assert set(COMMANDS) <= set(headings)
    group = typer.main.get_command(app)
    with group.make_context("manymatch", ["--version"], resilient_parsing=True) as context:
        for name in COMMANDS:
            _, command, _ = group.resolve_command(context, [name])
            part = text.split(f"## manymatch {name}\n")[1].split("\n## ")[0]
            for parameter in command.params:
                if parameter.param_type_name == "option" and not parameter.hidden:
                    assert f"`{parameter.opts[0]}`" in part


def test_page_of_settings_has_every_field_and_part():
    text = pages.settings_page()
    for field in dataclasses.fields(Options):
        assert f"| `{field.name}` |" in text
    for name in AUTO_PARTS:
        assert f"| `{name}` |" in text


def test_pages_are_written_below_the_folder(tmp_path):
    pages.write_pages(tmp_path)
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.md")}
    assert {"reference/commands.md", "reference/settings.md", "results/index.md"} <= written
    results = {page.name for page in pages.RESULTS.glob("*.md")}
    assert {f"results/{name}" for name in results} <= written
    index = (tmp_path / "results" / "index.md").read_text(encoding="utf-8")
    links = re.findall(r"^- \[.*\]\((\w+\.md)\)$", index, re.MULTILINE)
    assert sorted(links) == sorted(results)
    for page in (tmp_path / "results").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        # Nothing leads out of the documentation.
        assert "](../../" not in text
        for figure in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
            assert (tmp_path / "results" / figure).exists(), figure


def test_pages_that_did_not_change_are_not_written_again(tmp_path):
    pages.write_pages(tmp_path)
    page = tmp_path / "reference" / "commands.md"
    before = page.stat().st_mtime_ns
    pages.write_pages(tmp_path)
    assert page.stat().st_mtime_ns == before


def test_result_that_is_gone_is_gone_from_the_site(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "old.md").write_text("# Old\n", encoding="utf-8")
    pages.write_pages(tmp_path)
    assert not (tmp_path / "results" / "old.md").exists()


def test_looks_of_the_gallery_keep_the_size():
    pytest.importorskip("PIL")
    gallery = pytest.importorskip("tools.site.gallery")
    photo = np.random.default_rng(0).integers(0, 255, (72, 96, 3)).astype(np.uint8)
    for look in (gallery.thermal, gallery.night, gallery.print_on_a_wall):
        seen = look(photo)
        assert seen.shape == photo.shape
        assert seen.dtype == np.uint8
        assert not np.array_equal(seen, photo)
    # What is bright in a photograph is dark for the thermal camera.
    grey = np.repeat(np.linspace(0, 255, 96).astype(np.uint8)[None, :, None], 72, axis=0)
    warm = gallery.thermal(np.repeat(grey, 3, axis=2))[:, :, 0].astype(float)
    assert warm[:, :20].mean() > 200
    assert warm[:, -20:].mean() < 60


def test_page_of_the_gallery_has_all_pairs():
    gallery = pytest.importorskip("tools.site.gallery")
    sections = gallery.kept_sections()
    assert list(sections) == [pair.title for pair in gallery.GALLERY]
    for pair in gallery.GALLERY:
        assert pair.sentence in sections[pair.title]
        assert (gallery.PICTURES / f"{pair.name}.jpg").exists()
    assert sum(path.stat().st_size for path in gallery.PICTURES.glob("*.jpg")) < 2_000_000


def test_path_between_two_poses_begins_and_ends_at_them():
    pytest.importorskip("cv2")
    figures = pytest.importorskip("tools.site.figures")
    first, second = (mm.RelativePose(np.eye(3), t) for t in ([1.0, 0, 0], [0, 0.6, 0.8]))
    for share, end in ((0.0, first), (1.0, second)):
        pose = figures.turned(first, second, share)
        assert mm.pose_error_deg(pose, end.R, end.t) < 1e-5
