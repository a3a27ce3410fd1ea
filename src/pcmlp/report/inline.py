"""The style and scripts inside the page, and the content security policy that allows these and nothing else."""

import base64
import hashlib
from functools import cache
from importlib.resources import files


@cache
def read_inline(*, watched: bool) -> dict[str, str]:
    """Return the text of the page's elements: its style, its style without scripts, and its script."""
    parts = {"style": ["page.css"], "noscript": ["noscript.css"], "script": ["page.js", *["watch.js"] * watched]}
    folder = files("pcmlp.report") / "templates"
    return {name: "".join((folder / file).read_text() for file in of) for name, of in parts.items()}


def content_policy(*, watched: bool) -> str:
    """Return the policy of the page, which fetches nothing; under `pcmlp watch` it may ask for its newer versions.

    Style and scripts are allowed by their hashes, so a text from a run's files could not run even as markup.
    """
    hashes = {name: f"'sha256-{_digest(text)}'" for name, text in read_inline(watched=watched).items()}
    rules = {
        "default-src": "'none'",
        "style-src": f"{hashes['style']} {hashes['noscript']}",
        "script-src": hashes["script"],
        "img-src": "data:",
        "connect-src": "'self'" if watched else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
