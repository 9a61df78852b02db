"""Definitions of a session as a file that stands alone: what they need comes with them, and nothing else runs."""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Sequence
from types import ModuleType
from typing import Any, get_type_hints

import pytest

from fedstride import Setting
from fedstride.errors import ConfigError
from lab.python.notebook_definitions import HERE, CellSource, Definitions, is_source, used_names


def session(*cells: str) -> tuple[dict[str, Any], list[CellSource]]:
    """The names and sources of a session that has executed these cells, one after the other."""
    texts = [textwrap.dedent(cell) for cell in cells]
    names: dict[str, Any] = {"__name__": HERE}
    for text in texts:
        exec(compile(text, "cell", "exec", dont_inherit=True), names)
    return names, [CellSource(text, ast.parse(text).body) for text in reversed(texts)]


def written(name: str, *cells: str, also: Sequence[CellSource] = ()) -> dict[str, Any]:
    """The names of the file with this definition."""
    names, sources = session(*cells)
    together = Definitions(names, [*also, *sources])
    together.define(f"objective = {name!r}", name, names[name])
    module = ModuleType("alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "alone", module)  # data classes look there
        exec(compile(f"from __future__ import annotations\n{together.text}", "file", "exec"), vars(module))
    return vars(module)


def test_what_a_definition_uses_comes_with_it() -> None:
    found = written(
        "Mine",
        "import math\nimport os.path as p\nfrom collections import OrderedDict as Ordered, deque\nSCALE = 2.5",
        "NAMES = ('a', ('b', -1))\ndef helper(x):\n    return SCALE * other(x)\ndef other(x):\n    return x + 1",
        """
        class Base:
            def value(self): return len(NAMES)
        """,
        """
        class Mine(Base):
            kept: deque = deque([1])
            def value(self, SCALE=math.pi):
                deep = lambda x: [helper(each) for each in x]
                return super().value(), deep([1]), Ordered(a=p.sep), SCALE
        raise_if_run = 1
        """,
    )
    value = found["Mine"]().value()
    assert value == (2, [5.0], {"a": "/"}, 3.141592653589793)
    assert {"Base", "helper", "other", "NAMES", "SCALE"} <= set(found) and "raise_if_run" not in found


def test_modules_of_a_package_are_imported_as_in_the_cell() -> None:
    names, sources = session("import xml.dom, xml.sax as s\nimport xml", "def f():\n    return xml.dom, s")
    together = Definitions(names, sources)
    together.define("x", "f", names["f"])
    imports = [line for line in together.text.splitlines() if line.startswith("import")]
    assert imports == ["import xml.sax as s", "import xml", "import xml.dom"]


def test_functions_that_need_each_other_come_both() -> None:
    found = written(
        "even", "def even(n):\n    return n == 0 or odd(n - 1)\ndef odd(n):\n    return n > 0 and even(n - 1)"
    )
    assert found["even"](10) and not found["even"](7)


def test_a_local_name_is_not_that_of_the_session() -> None:
    """Values of the session that a file cannot have are no obstacle if the definition does not use them."""
    found = written(
        "f", "rows = [1, 2]\nmodel = object()", "def f(rows):\n    model = 3\n    return [model + x for x in rows]"
    )
    assert found["f"]([1]) == [4] and "rows" not in found


def test_an_edited_definition_is_the_newest_that_was_executed() -> None:
    cells = ["def f():\n    return 1", "def f():\n    return 2"]
    broken = "1 / 0\ndef f():\n    return 3"
    assert written("f", *cells)["f"]() == 2
    assert written("f", *cells, also=[CellSource(broken, ast.parse(broken).body)])["f"]() == 2


def test_another_name_for_a_definition_and_a_star_import() -> None:
    found = written("f", "from math import *\ndef g():\n    return floor(2.5)\nh = g", "def f():\n    return h()")
    assert found["f"]() == 2


def test_types_and_settings_with_names() -> None:
    found = written(
        "f",
        "from typing import Annotated, TypeVar\nfrom fedstride import Setting\nSIZE = Setting('size', above=0)",
        "Size = Annotated[\n    float, SIZE\n]\nT = TypeVar('T')\nPair = tuple[Size, T]\nEither = int | None",
        "def f(x: Size, y: Pair) -> Either:\n    return T",
    )
    hints = get_type_hints(found["f"], include_extras=True)
    assert hints["x"].__metadata__ == (Setting("size", above=0),) and hints["return"] == int | None


def test_a_decorated_helper_and_a_data_class() -> None:
    found = written(
        "Mine",
        "import functools\nfrom dataclasses import dataclass, field",
        "def twice(f):\n    @functools.wraps(f)\n    def g(x):\n        return f(x)\n    return g",
        "@twice\ndef slow(x):\n    return x * x",
        "@dataclass\nclass Mine:\n    at: int = 3\n    of: list = field(default_factory=list)\n"
        "    def value(self):\n        return slow(self.at)",
    )
    assert found["Mine"]().value() == 9 and found["Mine"](at=4).value() == 16


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("rows = [1, 2]\ndef f():\n    return rows", "objective = 'f' uses rows, a list of this session"),
        ("import numpy as np\ntable = np.zeros(3)\ndef f():\n    return table", "uses table, a ndarray"),
        ("inf = float('inf')\ndef f():\n    return inf", "uses inf, a float"),
        ("class A: pass\na = A()\ndef f():\n    return a", "uses a, a A of this session"),
        ("def g():\n    return lambda: 1\nh = g()\ndef f():\n    return h()", "needs <lambda>, whose source"),
        ("if True:\n    def g(): return 1\ndef f():\n    return g()", "needs g, whose source in this session"),
        ("exec('def f(): return 1')", "needs f, whose source in this session is not known: write it to a file"),
    ],
)
def test_what_a_file_cannot_have_is_named_in_one_line(cell: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        written("f", cell)
    assert said in str(error.value) and "\n" not in str(error.value) and "parts=FILE" in str(error.value)


def test_names_that_are_used() -> None:
    text = (
        "@deco(A)\nclass C(B, metaclass=M):\n    x: T = D\n    def f(self, y: U = E) -> V:\n"
        "        z = y\n        global G\n        G = z\n        return [w for w in W if w is not self]"
    )
    assert set(used_names(text)) == {"deco", "A", "B", "M", "T", "D", "U", "E", "V", "G", "W"}


def test_another_source_of_the_same_name_is_told_apart() -> None:
    names, _ = session("class C:\n    def f(self):\n        return [x + 1 for x in (1, 2)]\n    y = 0")
    same = "class C:\n\n    def f(self):\n        return [x + 1 for x in (1, 2)]"
    assert is_source(same, range(1, 6), names["C"])
    for other in ("return [x + 2 for x in (1, 2)]", "return [x + 1 for x in (1, 3)]", "return 1", "return self.y"):
        assert not is_source(f"class C:\n    def f(self):\n        {other}", range(1, 5), names["C"])


@pytest.mark.parametrize("before", ["import math\n", "from math import pi\n", "x = await y\n", "", "pass\n\n"])
def test_what_the_cell_does_besides_is_no_matter(before: str) -> None:
    text = "def f(x):\n    def g(y: int) -> str:\n        return math.floor(y)\n    return g(x)"
    names: dict[str, object] = {}
    exec(compile(before.replace("x = await y\n", "") + text, "cell", "exec", dont_inherit=True), names)
    assert is_source(before + text, range(1 + before.count("\n"), 9), names["f"])
    assert not is_source(before + text.replace("floor", "ceil"), range(1 + before.count("\n"), 9), names["f"])
