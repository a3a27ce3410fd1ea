"""The structure of the library: layers, sizes, docstrings. Each rule is written once, here or in docs/design.md."""

import ast
import re

import pytest
from architecture import FILES, ROOT, SOURCE, draw, imported, layers, module


def test_every_module_has_a_layer():
    named = [name for layer in layers() for name in layer]
    assert sorted(named) == sorted({module(path) for path in FILES} - {"__init__"})


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path):
    level = {name: i for i, layer in enumerate(layers()) for name in layer}
    mine = module(path)
    if mine == "__init__":
        return
    upward = [
        f"{path.name}:{line} imports {name}"
        for name, line in imported(path)
        if name != mine and level[name] >= level[mine]
    ]
    assert not upward


def test_an_upward_import_is_found(tmp_path, monkeypatch):
    """The test above can fail."""
    bad = SOURCE / "spaces.py"
    text = bad.read_text() + "\n\ndef late():\n    from pcmlp.runs.config import resolve\n"
    names = [name for name, _ in imported(type("Fake", (), {"read_text": lambda self: text})())]
    assert "runs" in names
    level = {name: i for i, layer in enumerate(layers()) for name in layer}
    assert level["runs"] > level["spaces"]


def test_the_picture_shows_the_imports_as_they_are():
    drawn = (ROOT / "docs" / "pictures" / "architecture.svg").read_text()
    assert drawn == draw(), "run python tests/architecture.py > docs/pictures/architecture.svg"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_are_short(path):
    text = path.read_text()
    assert text.count("\n") <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < 60, f"{node.name} has {node.end_lineno - node.lineno + 1} lines"


def public(tree):
    """Public classes and functions of a module, and public methods of its public classes."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node, node.name
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                    yield inner, f"{node.name}.{inner.name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_public_names_have_a_docstring_that_begins_plainly(path):
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree) or not tree.body, "the module has no docstring"
    for node, name in public(tree):
        doc = ast.get_docstring(node)
        assert doc, f"{name} has no docstring"
        first = doc.splitlines()[0]
        if isinstance(node, ast.ClassDef) or _is_property(node):
            assert not re.match(r"(Of|That|What|Who)\b", doc), f"{name}: {first}"
        else:  # a function does something: its docstring begins with a verb
            assert not re.match(NOUNS, doc), f"{name}: {first}"


NOUNS = (
    r"(Of|That|What|Who|Whether|The|An?|How|Where|Each|Every|All|It|Its|This|For|By|In|With|Between|One|Two|As|Some|No"
    r"|Rows?)\b"
)


def _is_property(node):
    """Return whether a method is a property, whose docstring may be a noun."""
    decorators = [getattr(d, "id", getattr(d, "attr", "")) for d in node.decorator_list]
    return any(name in ("property", "cached_property") for name in decorators)


def test_algorithm_2_is_short():
    """`iterate`, `improve` and the round inside it have at most 40 statements together."""
    tree = ast.parse((SOURCE / "algorithms" / "deep.py").read_text())
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}

    def statements(node):
        found = [inner for inner in ast.walk(node) if isinstance(inner, ast.stmt) and inner is not node]
        return len([s for s in found if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))])

    assert statements(functions["iterate"]) + statements(functions["improve"]) <= 40  # `one_round` is inside `improve`


def test_algorithm_2_has_its_lines_in_order():
    """The tags are as in `# line 5` or `# lines 6 and 7`."""

    def tags(text):
        found = re.findall(r"# lines? (\d+)(?: and (\d+))?", text)
        return [int(number) for numbers in found for number in numbers if number]

    text = (SOURCE / "algorithms" / "deep.py").read_text()
    assert sorted(set(tags(text))) in (list(range(1, 12)), [1, 2, 3, 5, 6, 7, 8, 9, 10, 11])
    order = [number for number in tags(text[text.index("def iterate") :]) if number >= 5]
    assert order == sorted(order) == [5, 6, 7, 8, 9, 10, 11]
