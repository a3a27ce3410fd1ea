"""The import graph of the library, and a picture of it.

`python tests/architecture.py > docs/pictures/architecture.svg` draws it. The rows are the layers of docs/design.md, and
the arrows are read from the source. Many modules import one that they also reach through others; such arrows are left
out, so that the others can be followed.
"""

import ast
import re
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "pcmlp"
FILES = sorted(SOURCE.rglob("*.py"))

MAIN = ("cli", "commands", "runs", "parts", "algorithms", "planners", "imagine", "types")  # a reader's first way down
ROW, BOX, GAP, LETTER = 62, 30, 12, 9.1  # heights of a row and a box, space between boxes, width of a letter
PULL = 0.85  # below 1, all boxes are drawn to the middle of the picture
STYLE = """
  text { font: 15px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2937; text-anchor: middle }
  .note { font: 13px system-ui, sans-serif; fill: #4b5563; text-anchor: start }
  rect { fill: #ffffff; stroke: #9ca3af; rx: 5px }
  .package rect { fill: #e0ecf8; stroke: #4a7fb5 }
  .main rect { stroke: #c2410c; stroke-width: 2px }
  path { fill: none; stroke: #9ca3af; stroke-width: 1.2px }
  path.head { fill: #6b7280; stroke: none }
  path.main { stroke: #c2410c; stroke-width: 2.2px }
"""


def layers():
    """Return the order of docs/design.md, lowest first: each line of its block is a layer of modules."""
    text = (ROOT / "docs" / "design.md").read_text()
    block = re.search(r"```layers\n(.*?)```", text, re.DOTALL)
    assert block, "docs/design.md has no block of layers"
    return [line.split() for line in block[1].splitlines() if line.strip()]


def module(path):
    """Return the module or package directly below pcmlp that a file belongs to."""
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported(path):
    """Yield the modules directly below pcmlp that a file imports, anywhere in it, with the line."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module == "pcmlp":
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pcmlp."):
            names = [node.module.split(".")[1]]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".")[1] for alias in node.names if alias.name.startswith("pcmlp.")]
        for name in names:
            yield name, node.lineno


def imports():
    """Return which modules each module imports."""
    graph = {name: set() for layer in layers() for name in layer}
    for path in FILES:
        if (importer := module(path)) in graph:
            graph[importer] |= {name for name, _ in imported(path) if name in graph and name != importer}
    return graph


def reduce(graph):
    """Return the graph without the arrows that a longer way shows too, except those of the main way."""
    reached = {}
    for layer in layers():  # what is below is known first
        for name in layer:
            reached[name] = set(graph[name]).union(*(reached[below] for below in graph[name]))
    drawn = {a: {b for b in below if not any(b in reached[c] for c in below)} for a, below in graph.items()}
    for above, below in zip(MAIN, MAIN[1:], strict=False):
        drawn[above] |= graph[above] & {below}
    return drawn


def place(arrows):
    """Return the centre of each box, and the points that arrows pass through.

    An arrow that crosses rows passes through a point in each of them. Arrows to the same module share these points.
    Boxes and points of a row move towards what they are connected to, and keep their distance.
    """
    rows = [list(layer) for layer in reversed(layers())]
    row_of = {name: i for i, row in enumerate(rows) for name in row}
    links = {}
    for above, below in ((a, b) for a in sorted(arrows) for b in sorted(arrows[a])):
        chain = [above, *((below, row) for row in range(row_of[above] + 1, row_of[below])), below]
        for point in chain[1:-1]:
            if point not in rows[point[1]]:
                rows[point[1]].append(point)
        links[above, below] = chain
    near = {node: set() for row in rows for node in row}
    for chain in links.values():
        for one, next_one in zip(chain, chain[1:], strict=False):
            near[one].add(next_one)
            near[next_one].add(one)
    x = {node: 100.0 * (i - len(row) / 2) for row in rows for i, node in enumerate(row)}
    for sweep in range(60):
        for row in rows if sweep % 2 else reversed(rows):
            _spread(row, near, x)
    left = min(x[name] - width(name) / 2 for name in row_of) - GAP
    height = {node: 60 + ROW * i + BOX / 2 for i, row in enumerate(rows) for node in row}
    return {node: (round(x[node] - left), round(height[node])) for node in x}, links


def width(node):
    """Return the width of a box, or of a point."""
    return LETTER * len(node) + 22 if isinstance(node, str) else 0


def _spread(row, near, x):
    """Move the nodes of a row to the middle of what they are connected to, in order and with space between them."""
    wanted = {node: PULL * mean(sorted(x[other] for other in near[node] or [node])) for node in row}
    row.sort(key=lambda node: (wanted[node], str(node)))
    end = None
    for node in row:
        half = width(node) / 2
        x[node] = wanted[node] if end is None else max(wanted[node], end + GAP + half)
        end = x[node] + half
    shift = mean(x[node] - wanted[node] for node in row)
    for node in row:
        x[node] -= shift


def curve(points):
    """Return the path of an arrow through its points, from box to box."""
    path = f"M{points[0][0]},{points[0][1] + BOX // 2}"
    for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False):
        top = y0 + BOX // 2
        end = y1 - BOX // 2 - (6 if (x1, y1) == points[-1] else 0)
        middle = (top + end) // 2
        path += f" C{x0},{middle} {x1},{middle} {x1},{end}"
        path += f" V{y1 + BOX // 2}" if (x1, y1) != points[-1] else ""
    return path


def box(name, centre):
    """Return the lines of a module's box, with the first line of its docstring as a tooltip."""
    package = SOURCE / name / "__init__.py"
    file = package if package.exists() else SOURCE / f"{name}.py"
    kinds = ["package"] * package.exists() + ["main"] * (name in MAIN)
    about = (ast.get_docstring(ast.parse(file.read_text())) or name).splitlines()[0]
    about = about.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    wide = round(width(name))
    return [
        f'<g class="{" ".join(kinds)}"><title>{about}</title>',
        f'<rect x="{centre[0] - wide // 2}" y="{centre[1] - BOX // 2}" width="{wide}" height="{BOX}"/>',
        f'<text x="{centre[0]}" y="{centre[1] + 5}">{name}{"/" * package.exists()}</text></g>',
    ]


def draw():
    """Return the picture as SVG."""
    graph = imports()
    arrows = reduce(graph)
    places, links = place(arrows)
    names = [name for layer in layers() for name in layer]
    wide = max(places[name][0] + round(width(name) / 2) for name in names) + GAP
    high = max(y for _, y in places.values()) + BOX
    total, shown = (sum(map(len, edges.values())) for edges in (graph, arrows))
    notes = [
        f"An arrow is an import. {shown} of {total} are drawn; the others only shorten a way that is drawn.",
        "Blue: packages. Orange: from the command line to the algorithm.",
    ]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}">',
        f"<title>The modules of pcmlp in layers, and what they import</title>\n<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="2" refY="4" markerWidth="7" markerHeight="7" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0 L8,4 L0,8 z" class="head"/></marker></defs>',
        f'<rect width="{wide}" height="{high}" style="fill:#ffffff;stroke:none"/>',
        *(f'<text class="note" x="{GAP}" y="{24 + 20 * i}">{note}</text>' for i, note in enumerate(notes)),
    ]
    on_way = set(zip(MAIN, MAIN[1:], strict=False))
    for link in sorted(links, key=lambda link: link in on_way):  # the main way is drawn last, on top
        main = ' class="main"' if link in on_way else ""
        lines.append(f'<path{main} marker-end="url(#head)" d="{curve([places[point] for point in links[link]])}"/>')
    for name in names:
        lines += box(name, places[name])
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    print(draw(), end="")
