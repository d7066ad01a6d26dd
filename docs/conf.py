"""How the documentation is built: `make docs`, in which every warning is an error."""

import re

import django
from django.conf import settings
from sphinx.application import Sphinx

from django_pgqueue import __version__

project = "django_pgqueue"
author = "The django_pgqueue authors"
copyright = author  # noqa: A001  # Sphinx names it so.
release = version = __version__

# Autodoc imports the package, as an app of a project that has no database.
settings.configure(
    INSTALLED_APPS=[
        "django.contrib.contenttypes",
        "django.contrib.auth",
        "django_pgqueue",
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}},
)
django.setup()

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # The docstrings say what is taken, in words.
napoleon_numpy_docstring = False
# Of Django, whose pages are not asked for.
nitpick_ignore = [
    ("py:exc", name)
    for name in (
        "IntegrityError",
        "InvalidTask",
        "InvalidTaskBackend",
        "OperationalError",
        "TaskResultDoesNotExist",
        "TransactionManagementError",
    )
]
# Of Literal[False], in an overload.
nitpick_ignore += [("py:class", "False")]
# Of Python's own documentation, in a signature.
nitpick_ignore += [("py:class", "datetime.datetime")]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3  # [links](page.md#a-heading) reach headings of this depth.
exclude_patterns = ["_build"]

html_theme = "alabaster"
html_title = "django_pgqueue"
html_theme_options = {
    "description": "Background tasks and messaging for Django, in PostgreSQL",
    "fixed_sidebar": True,
    "page_width": "1080px",
}


def fill_in_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    """
    Add the contents, which GitHub shows by itself.

    The sidebar has the links of index.md; the page of decisions, the files beside it.
    """
    if docname == "index":
        for section in source[0].split("\n## ")[1:]:
            caption = section.partition("\n")[0]
            pages = re.findall(r"\]\(([\w/-]+)\.md\)", section)
            source[0] += toctree(":hidden:", f":caption: {caption}", "", *pages)
    elif docname == "contributing/decisions/README":
        source[0] += toctree(":glob:", "", "[0-9]*")


def toctree(*lines: str) -> str:
    return "\n".join(["\n```{toctree}", ":maxdepth: 1", *lines, "```\n"])


def mark_examples(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Docstrings set code apart by its indentation alone; reStructuredText wants ::."""
    marked: list[str] = []
    for place, line in enumerate(lines):
        begins = place > 1 and not lines[place - 1] and line.startswith("    ")
        if begins and not lines[place - 2].startswith("    "):
            marked += ["::", ""]
        marked.append(line)
    lines[:] = marked


def setup(app: Sphinx) -> None:
    # Before napoleon's, whose sections are indented too, but not after a blank line.
    app.connect("autodoc-process-docstring", mark_examples, priority=400)
    app.connect("source-read", fill_in_contents)
