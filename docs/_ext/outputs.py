"""What the code of pages prints: blocks of Python run in order when the site is built."""

import contextlib
import hashlib
import io
import json
import os
import pathlib
import re
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

import jax
from pages import GENERATED, ROOT
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

import jaxsvm

BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.M | re.S)
PAGES = [*sorted(ROOT.glob("docs/*.md")), ROOT / "jaxsvm/solvers/README.md"]


def run(page: str, blocks: list[str]) -> list[str]:
    """Run blocks in one namespace and a folder of their own; return what each prints."""
    os.environ.setdefault("MPLBACKEND", "agg")
    names, printed, before = {}, [], tempfile.tempdir
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        tempfile.tempdir = folder
        try:
            for block in blocks:
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compile(block, page, "exec"), names)
                printed.append(re.sub(rf"{folder}/(tmp\w+/)?", "", out.getvalue()))
        except Exception as error:
            raise ExtensionError(f"block {len(printed) + 1} of {page} fails: {error!r}") from error
        finally:
            tempfile.tempdir = before
    return printed


def with_outputs(text: str, printed: list[str]) -> str:
    """Put what each block prints under it."""
    rest = iter(printed)

    def block(found: re.Match) -> str:
        out = next(rest).rstrip()
        return found[0] + (f"```{{code-block}} text\n:class: output\n\n{out}\n```\n" if out else "")

    return BLOCK.sub(block, text)


def saved_outputs() -> dict[str, list[str]]:
    """What the pages print: from `generated`, but for pages of which the code has changed."""
    files = sorted(pathlib.Path(jaxsvm.__file__).parent.rglob("*.py"))
    package = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    file = GENERATED / "outputs.json"
    saved = json.loads(file.read_text()) if file.exists() else {}
    blocks = {str(path.relative_to(ROOT)): BLOCK.findall(path.read_text()) for path in PAGES}
    key = {page: [jax.__version__, package, *code] for page, code in blocks.items() if code}
    todo = [page for page in key if saved.get(page, {}).get("key") != key[page]]
    workers = min(4, os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        runs = {pool.submit(run, page, blocks[page]): page for page in todo}
        for done in as_completed(runs):
            saved[runs[done]] = {"key": key[runs[done]], "printed": done.result()}
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(saved))
    return {page: saved[page]["printed"] for page in key}


def setup(app: Sphinx) -> dict:
    """Run the blocks first; add what they print to a page before it is read."""
    printed = saved_outputs()

    def read_source(app: Sphinx, docname: str, source: list[str]) -> None:
        source[0] = with_outputs(source[0], printed.get(f"{docname}.md", []))

    app.connect("source-read", read_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
