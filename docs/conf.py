"""How the documentation is built: `make docs`, in which every warning is an error."""

from pathlib import Path

from sphinx.application import Sphinx

from django_pgqueue import __version__

project = "django_pgqueue"
author = "The django-pgqueue authors"
copyright = author  # noqa: A001  # Sphinx names it so.
release = version = __version__

extensions = ["myst_parser"]
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

# The contents of index.md: every page of these folders, the named ones first and the
# others by name. A new page needs no entry, and a folder without pages is left out.
CONTENTS = {
    "Learn": ["tutorial/first-task", "tutorial/*"],
    "Do": ["howto/*"],
    "Consult": ["reference/*"],
    "Understand": ["explanation/life-of-a-job", "explanation/*"],
    "Contribute": ["contributing/*", "contributing/decisions/*"],
}


def contents() -> str:
    docs = Path(__file__).parent
    blocks = []
    for caption, patterns in CONTENTS.items():
        found = [page for name in patterns for page in sorted(docs.glob(f"{name}.md"))]
        pages = dict.fromkeys(page.relative_to(docs).with_suffix("") for page in found)
        if pages:
            lines = [":caption: " + caption, ":maxdepth: 1", "", *map(str, pages)]
            blocks.append("\n".join(["```{toctree}", *lines, "```"]))
    return "\n\n".join(blocks)


def fill_in_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname == "index":
        source[0] = source[0].replace("<!-- contents: see conf.py -->", contents())


def setup(app: Sphinx) -> None:
    app.connect("source-read", fill_in_contents)
