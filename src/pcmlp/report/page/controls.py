"""What a reader of the page can set, as HTML: switches for runs and for what is shown of them, sliders over policies.

They are checkboxes, buttons, a range and a list, so that a keyboard and a screen reader know them. `data-key` names
what stays set when `pcmlp watch` brings the page up to date.
"""

from html import escape
from typing import Any

from pcmlp.report.page.charts import Chart


def switches(key: str, data: dict[str, Any], legend: str = "Runs") -> str:
    """One for each line of the charts."""
    labels = []
    for i, run in enumerate(data["runs"]):
        line = f'<path class="mean {run["look"]}" d="M0 5H30"/>'
        swatch = f'<svg class="swatch" viewBox="0 0 30 10" aria-hidden="true">{line}</svg>'
        own = escape(f"{key}/{run['label'].split(' (')[0]}")
        labels.append(
            f'<label><input type="checkbox" checked data-run="{i}" data-key="{own}">'
            f"{swatch}{escape(run['label'])}</label>"
        )
    both = '<button type="button" data-all="on">all</button><button type="button" data-all="off">none</button>'
    many = both if len(labels) > 2 else ""
    return f'<fieldset class="switches"><legend>{legend}</legend>{"".join(labels)}{many}</fieldset>'


def options(key: str, data: dict[str, Any]) -> str:
    """What is shown of all of them."""
    lines = [line for run in data["runs"] for line in run["lines"].values()]
    offered = {}
    if any("seeds" in line for line in lines):
        offered["band"] = ("range of seeds", True)
        offered["seeds"] = ("each seed" + (" (the first 10)" if data["more"] else ""), data["seeds"])
    if any("explore" in line for line in lines):
        offered["explore"] = ("exploring policy (dotted)", False)
    offered["stretched"] = ("logarithmic steps", data["stretched"])
    labels = "".join(
        f'<label><input type="checkbox"{" checked" if on else ""} data-option="{name}" '
        f'data-key="{escape(key)}/show {name}">{text}</label>'
        for name, (text, on) in offered.items()
    )
    return f'<fieldset class="switches"><legend>Show</legend>{labels}</fieldset>'


def chart(chart: Chart) -> str:
    return (
        f'<figure class="chart" data-chart="{chart.column}"><figcaption>{chart.title} <span>{chart.y}</span>'
        '</figcaption><div class="plot"></div></figure>'
    )


def cover_map(own: str, found: dict[str, Any], label: str) -> str:
    last = len(found["policies"]) - 1
    seeds = "".join(f'<option value="{i}">{seed}</option>' for i, seed in enumerate(found["seeds"]))
    goal = '<span style="background:var(--goal)"></span>goal' if "goal" in found else ""
    wall = '<span style="background:var(--wall)"></span>wall' if "wall" in found else ""
    return (
        f'<figure class="map" data-map="{escape(own)}"><figcaption>Where the policies of the cover have been '
        f'<span>{escape(label)}</span></figcaption>\n<div class="controls"><label>policy <input type="range" min="0" '
        f'max="{last}" value="{last}" data-key="{escape(own)}/policy"></label>'
        f'<label>seed <select data-key="{escape(own)}/seed">{seeds}</select></label></div>\n<output></output>\n'
        f'<div class="plot"></div>\n<p class="key"><span style="background:var(--c1)"></span>this policy'
        f'<span style="background:var(--c5)"></span>those before it{goal}{wall}</p></figure>'
    )
