"""Configuration of Sphinx; ``make docs`` builds the site."""

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

import manymatch  # noqa: E402
from tools.site.pages import write_pages  # noqa: E402

write_pages(DOCS)

project = "manymatch"
author = "The manymatch authors"
copyright = author  # noqa: A001 - the name that Sphinx wants
version = release = manymatch.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

# What docstrings write in single backticks is linked where it is a name of the library.
default_role = "py:obj"
nitpicky = True
nitpick_ignore_regex = [
    ("py:obj", ".*"),
    ("py:(class|data|exc|func|meth|attr|mod)", r"(?!manymatch\.).*"),
]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_rtype = False

# Tables of results may begin below a heading of the third level.
suppress_warnings = ["myst.header"]

html_theme = "furo"
html_title = "manymatch"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_sourcelink = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
