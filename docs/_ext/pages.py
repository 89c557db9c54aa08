"""Pages that are cut from other files: the results, section by section, and the gallery."""

import base64
import io
import json
import pathlib
import re

from docstrings import formula
from PIL import Image
from sphinx.application import Sphinx

ROOT = pathlib.Path(__file__).parent.parent.parent
GENERATED = ROOT / "docs" / "generated"
WIDTH = 480  # pixels of a thumbnail


def write_folder(name: str, files: dict[str, bytes]) -> None:
    """Make a folder of generated files hold these and no others; equal ones stay as they are."""
    folder = GENERATED / name
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name not in files:
            path.unlink()
    for name, content in files.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def slug(title: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def sections() -> dict[str, str]:
    """The sections of the results: anchor -> text, which begins with the title."""
    parts = re.split(r"^## ", (ROOT / "benchmarks/README.md").read_text(), flags=re.M)[1:]
    return {slug(part.split("\n")[0]): part for part in parts}


def question(part: str) -> str:
    """The question that a section answers, its first sentence."""
    return " ".join(re.split(r"(?<=\?)\s", part.split("\n\n", 2)[1])[0].split())


def result_page(part: str) -> bytes:
    """A section of the results as a page: headings one level up, and links from its own folder."""
    text = "# " + re.sub(r"^##(#+ )", r"#\1", part, flags=re.M)
    text = re.sub(r"\]\((?=results/|PAPERS)", "](../../../benchmarks/", text)
    text = text.replace("](../docs/", "](../../")
    return re.sub(r"\]\(#([\w-]+)\)", r"](\1.md)", text).encode()


def thumbnail(path: pathlib.Path) -> bytes | None:
    """The first picture that a notebook holds, smaller; None: it holds none."""
    outputs = [
        output.get("data", {})
        for cell in json.loads(path.read_text())["cells"]
        for output in cell.get("outputs", [])
    ]
    pictures = [data["image/png"] for data in outputs if "image/png" in data]
    if not pictures:
        return None
    picture = Image.open(io.BytesIO(base64.b64decode(pictures[0]))).convert("RGB")
    file = io.BytesIO()
    picture.thumbnail((WIDTH, WIDTH))
    picture.save(file, "png")
    return file.getvalue()


def toctree(names: list[str]) -> str:
    """A table of contents that only the side bar shows."""
    return "\n".join(["", "```{toctree}", ":hidden:", "", *names, "```", ""])


def title(notebook: str) -> str:
    """The first heading of a notebook."""
    cells = json.loads((ROOT / "notebooks" / f"{notebook}.ipynb").read_text())["cells"]
    return re.search(r"^# (.*)$", "\n".join("".join(cell["source"]) for cell in cells), re.M)[1]


def gallery(text: str) -> str:
    """Replace the table of notebooks by cards with their titles and pictures."""
    row = re.compile(r"^\| \[(\w+)\]\(\w+\.ipynb\) \| (.*) \|$", re.M)
    cards = ["::::{grid} 1 2 2 3", ":gutter: 3", ""]
    names = [name for name, _ in row.findall(text)]
    for name, question in row.findall(text):
        cards += [f":::{{grid-item-card}} {title(name)}", f":link: {name}", ":link-type: doc"]
        picture = f"/docs/generated/thumbnails/{name}.png"
        cards += [f":img-top: {picture}"] if (ROOT / picture[1:]).exists() else []
        cards += ["", question, ":::"]
    grid = "\n".join([*cards, "::::", ""])
    text = re.sub(r"^\| notebook .*\n\|---.*\n", lambda _: grid, text, flags=re.M)
    text = re.sub(rf"(?:{row.pattern}\n)+", "", text, flags=re.M)
    return text + toctree(names)


def formulas(text: str) -> str:
    """Typeset the indented blocks of a page, which are formulas."""
    html = lambda found: "\n".join(
        ["```{raw} html", *formula([line[4:] for line in found[0].split("\n") if line]), "```", ""]
    )
    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    parts[::2] = [re.sub(r"(?<=\n\n)(?: {4}.*\n)+", html, part) for part in parts[::2]]
    return "".join(parts)


def read_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """Change the text of a page before it is read."""
    text = source[0]
    if docname == "notebooks/README":
        text = gallery(text)
    elif docname == "benchmarks/README":
        pages = {f"/docs/generated/results/{name}": part for name, part in sections().items()}
        title = lambda part: part.split("\n")[0]
        lines = [
            f"- [{title(part)}]({page}.md): {question(part)}\n" for page, part in pages.items()
        ]
        text = re.split(r"^## ", text, flags=re.M)[0] + "".join(lines) + toctree(list(pages))
    elif docname.startswith("notebooks/"):
        notebook = json.loads(text)
        notebook["metadata"]["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
        text = json.dumps(notebook)
    else:
        text = formulas(text) if re.fullmatch(r"docs/\w+", docname) else text
        text = re.sub(
            r"\]\([./]*benchmarks/README\.md#([\w-]+)\)", r"](/docs/generated/results/\1.md)", text
        )
    source[0] = text


def setup(app: Sphinx) -> dict:
    """Write the pages before Sphinx looks for them."""
    write_folder("results", {f"{name}.md": result_page(part) for name, part in sections().items()})
    pictures = {
        f"{path.stem}.png": thumbnail(path) for path in (ROOT / "notebooks").glob("*.ipynb")
    }
    write_folder("thumbnails", {name: picture for name, picture in pictures.items() if picture})
    app.connect("source-read", read_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
