"""Pages of the documentation that are made from the code and from the measured results.

``docs/conf.py`` calls `write_pages` before Sphinx reads the sources. The pages are not in the
repository: `reference/commands.md` comes from the commands themselves, `reference/settings.md` from
the fields of the settings, and `results/` from the tables in ``benchmarks/results``.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import typer

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
# Pages of results by what a reader looks for. Others follow at the end, by name.
TOPICS = {
    "Accuracy of a pair": "demo accuracy auto fusion field never_worse unknown_focal wide_indoor",
    "Probabilities": "confidence reliability",
    "Speed": "first_result speed time_to_solution match_times profile speed_front networks app",
    "Other problems": "homography fundamental absolute_pose registration localization",
    "Many photographs": "reconstruction pair_truth batches",
    "Candidates and features": "association compat features diagnostics",
    "The paper": "experiments fidelity",
}


def write_pages(docs: Path) -> None:
    """Write all generated pages below the folder of the documentation."""
    _write(docs / "reference" / "commands.md", commands_page())
    _write(docs / "reference" / "settings.md", settings_page())
    _write_results(docs / "results")


def _write(path: Path, text: str) -> None:
    """Write a page unless it is there already, so that Sphinx reads only what changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def commands_page() -> str:
    """Return the page of all commands: usage, explanation, arguments, options, example."""
    from manymatch.cli.app import app

    group: Any = typer.main.get_command(app)
    lines = [
        "# Commands",
        "",
        "Made from the commands themselves. `manymatch COMMAND --help` prints the same in a "
        "terminal; [settings](settings.md) explains what `--set` takes.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        "| 0 | success; of a batch: every pair was run and at least one has a pose |",
        "| 1 | the command ran, but the images do not match, or pairs could not be run |",
        "| 2 | bad input, or a result that cannot be written: one sentence on standard error |",
        "| 3 | the Ray cluster of a batch has ended; the same command resumes |",
        "| 130 | interrupted by Ctrl-C; batches and evaluations resume with the same command |",
        "",
    ]
    with group.make_context("manymatch", ["--version"], resilient_parsing=True) as context:
        for name in group.list_commands(context):
            _, command, _ = group.resolve_command(context, [name])
            lines += _command_lines(name, command)
    return "\n".join(lines) + "\n"


def _command_lines(name: str, command: Any) -> list[str]:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    usage = " ".join(_argument_name(one) for one in arguments)
    lines = [f"## manymatch {name}", "", "```sh", f"manymatch {name} {usage} [OPTIONS]", "```", ""]
    lines += [_text(command.help), ""]
    lines += [f"- `{_argument_name(one)}`: {_text(one.help)}" for one in arguments]
    lines += [""] if arguments else []
    panels: dict[str, list[Any]] = {}
    for option in command.params:
        if option.param_type_name == "option" and not option.hidden:
            panels.setdefault(getattr(option, "rich_help_panel", None) or "Options", []).append(
                option
            )
    for panel, options in panels.items():
        lines += [f"| {panel} | |", "|---|---|"]
        lines += [f"| {_flags(one)} | {_option_help(one)} |" for one in options]
        lines += [""]
    if command.epilog:
        lines += ["```sh", _example(command.epilog), "```", ""]
    return lines


def _argument_name(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name).upper().strip("[]")
    name += "..." if parameter.nargs == -1 else ""
    return name if parameter.required else f"[{name}]"


def _flags(option: Any) -> str:
    names = [*option.opts, *option.secondary_opts]
    return ", ".join(f"`{name}`" for name in names)


def _option_help(option: Any) -> str:
    default = option.default
    shown = default is not None and not callable(default) and default not in (False, True, (), [])
    return _text(option.help) + (f" Default: `{default}`." if shown else "")


def _example(epilog: str) -> str:
    return re.sub(r"^Examples?:\s*", "", epilog.strip())


def _text(text: str | None) -> str:
    """Escape what Markdown and tables would take for markup."""
    words = re.sub(r"\[/?[a-z]+\]", "", text or "")
    return words.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("$", "\\$")


def settings_page() -> str:
    """Return the page of all settings: fields of features, association and estimation."""
    from manymatch.associate.candidates import Association
    from manymatch.features.feature_config import FeatureConfig
    from manymatch.options import AUTO_PARTS, Options

    lines = [
        "# Settings",
        "",
        "Every setting is a keyword of `Matcher`, a name for `--set name=value`, and a key of a "
        "configuration file ([several sources](../guides/sources.md)). The estimator's are fields "
        "of `Options` and keywords of every `estimate_*`.",
        "",
    ]
    sections = (
        ("Features", FeatureConfig, "Section `[features]`: how an image becomes keypoints."),
        ("Association", Association, "Section `[association]`: how keypoints become candidates."),
        ("Estimation", Options, "Section `[estimation]`: how candidates become a result."),
    )
    for title, settings, about in sections:
        lines += [f"## {title}", "", about, "", "| setting | default | meaning |", "|---|---|---|"]
        for field in dataclasses.fields(settings):
            default = "none" if field.default is None else str(field.default)
            meaning = _text(field.metadata.get("help", ""))
            lines.append(f"| `{field.name}` | `{default}` | {meaning} |")
        lines.append("")
    lines += ["## Parts of the default method", ""]
    lines += ['`Options(disable=("mixture",))` switches a part of `"auto"` off.', ""]
    lines += ["| part | what it does |", "|---|---|"]
    lines += [f"| `{name}` | {_text(text)} |" for name, text in AUTO_PARTS.items()]
    return "\n".join(lines) + "\n"


def _write_results(folder: Path) -> None:
    shutil.rmtree(folder / "figures", ignore_errors=True)
    shutil.copytree(RESULTS / "figures", folder / "figures")
    found = sorted(page.stem for page in RESULTS.glob("*.md"))
    topics = {topic: names.split() for topic, names in TOPICS.items()}
    listed = {name for names in topics.values() for name in names}
    topics["More"] = [name for name in found if name not in listed]
    names = [name for group in topics.values() for name in group if name in found]
    for old in folder.glob("*.md"):
        if old.stem not in {*names, "index"}:
            old.unlink()
    rows: dict[str, str] = {}
    for name in names:
        text = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
        text = text.replace("](../../docs/", "](../")
        # Files of the repository that are no page are named, not linked.
        text = re.sub(r"\[([^\]]+)\]\(\.\./\.\./[^)]+\)", r"`\1`", text)
        _write(folder / f"{name}.md", text)
        title = re.search(r"^# (.*)$", text, re.MULTILINE)
        rows[name] = f"- [{title[1] if title else name}]({name}.md)"
    lines = [
        "# Results",
        "",
        "Measured tables, each with the command that makes it. They also say what was tried and "
        "not kept. The sources are in `benchmarks/results`.",
        "",
        *_topic_lines(topics, rows),
        "```{toctree}",
        ":hidden:",
        "",
        *names,
        "```",
    ]
    _write(folder / "index.md", "\n".join(lines) + "\n")


def _topic_lines(topics: dict[str, list[str]], rows: dict[str, str]) -> list[str]:
    lines = []
    for topic, names in topics.items():
        there = [rows[name] for name in names if name in rows]
        lines += [f"## {topic}", "", *there, ""] if there else []
    return lines
