"""The site: `sphinx-build -W --keep-going -c docs . build/site` from the root.

Sources are files of the whole repository, so that a link between them is the
same on the site and in the repository. `_ext` writes the pages that are cut
from other files into `docs/generated`.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "_ext"))

import jaxsvm

project = "jaxsvm"
author = "The jaxsvm developers"
release = version = jaxsvm.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
extensions += ["pages", "outputs", "reference"]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "notebooks/*",
    "benchmarks/*.md",
    "jaxsvm/*/README.md",
    "tests/README.md",
]
include_patterns += ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
exclude_patterns = [
    "docs/README.md",
    "**/.ipynb_checkpoints",
    ".*",
    "build",
    "dist",
    "jaxsvm/**/*.py",
]

# the notebooks hold their output, and the tests run them
nb_execution_mode = "off"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
# blocks of code name their language
highlight_language = "none"
copybutton_selector = "div:not(.output) > div.highlight > pre"
copybutton_prompt_text = ">>> |\\.\\.\\. "
copybutton_prompt_is_regexp = True

autodoc_preserve_defaults = True
autodoc_typehints = "signature"
napoleon_custom_sections = [
    "Differs from the paper",
    "Differs from the papers",
    "Reference",
    ("Attributes", "params_style"),
]
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"
# names of other packages have no page here, nor have names that are not public
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!jaxsvm\.).*"),
    (r"py:.*", r"jaxsvm\.([a-z_]+\.)+_?[A-Z]\w*"),
]

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"jaxsvm {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_root"]  # index.html, which leads to docs/index.html
html_show_sphinx = html_show_copyright = False
html_copy_source = False
