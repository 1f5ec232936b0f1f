"""What a release is made of agrees: versions, dependencies, workflows and the changelog."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import manymatch

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_conda_recipe_has_the_version_and_the_dependencies_of_the_package():
    recipe = read(ROOT / "conda" / "recipe.yaml")
    assert recipe["context"]["version"] == manymatch.__version__
    run = {entry.replace(" ", "") for entry in recipe["requirements"]["run"]}
    assert run == {f"python{PROJECT['requires-python']}", *PROJECT["dependencies"]}


def test_changelog_begins_with_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+)", text, re.MULTILINE)[1] == manymatch.__version__


def test_package_says_who_made_it_and_what_it_is_for():
    assert PROJECT["authors"]
    assert PROJECT["urls"]
    for problem in ("poses", "homographies", "fundamental", "point clouds"):
        assert problem in PROJECT["description"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_of_a_workflow_end_and_call_targets_that_exist(path):
    workflow = read(path)
    # YAML takes the key "on" for a truth value.
    assert workflow[True]
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 120
        for step in job["steps"]:
            for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", "")):
                assert target in TARGETS


def test_workflows_lint_and_test_on_every_supported_platform():
    jobs = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    assert [step.get("run") for step in jobs["lint"]["steps"]][-1] == "make lint"
    systems = {entry["os"] for entry in jobs["test"]["strategy"]["matrix"]["include"]}
    for kind in (r"ubuntu-[\d.]+$", r"ubuntu-.*-arm$", r"macos-"):
        assert any(re.match(kind, system) for system in systems)


def test_only_the_release_may_write_and_has_no_token():
    text = (ROOT / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8")
    assert "secrets." not in text
    jobs = yaml.safe_load(text)["jobs"]
    assert [name for name, job in jobs.items() if "permissions" in job] == ["release"]
    assert jobs["release"]["permissions"]["id-token"] == "write"
    assert jobs["release"]["if"] == "startsWith(github.ref, 'refs/tags/v')"


@pytest.mark.parametrize("name", ["bug", "idea", "wrong_verdict"])
def test_issue_form_asks_for_something(name):
    form = read(ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml")
    assert any(field.get("validations", {}).get("required") for field in form["body"])
