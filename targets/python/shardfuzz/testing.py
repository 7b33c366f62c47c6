"""pytest: a test of a training step for each layout. Installed as a plugin (entry point pytest11), it has the fixture `layout`.

    @shardfuzz.parametrize_layouts(dp=[1, 2], tp=[1, 2])
    def test_training(layout):
        layout.verify(build, train_step)
"""
import itertools
import shlex

import pytest

from .errors import ShardfuzzError
from .layouts import References, compare
from .program import program_in_texts
from .verdict import Result


class LayoutError(AssertionError):
    """A layout does not give what one device gives. The text is the report."""

    def __init__(self, layout: "Layout", result: Result):
        again = f"{program_in_texts()} check {shlex.quote(result.reference)} {shlex.quote(result.candidate)} --table"
        super().__init__(f"the layout {layout} does not give what one device gives\n{result}\nevery tensor {again}")
        self.result = result


class Layout:
    """What a test gets: the sizes of the axes, by name, and a folder for traces."""

    def __init__(self, sizes, directory: str, references: References):
        self.sizes, self.directory, self.references = sizes, directory, references

    def __getitem__(self, axis: str) -> int:
        return self.sizes[axis]

    def __repr__(self) -> str:
        return name_of(self.sizes)

    def verify(self, build, train_step, **options) -> Result:
        """shardfuzz.compare(build, train_step, sizes, **options) in this layout. Returns the verdict when it is a pass; else raises LayoutError with the
        report, which pytest shows. The traces stay in the test's temporary folder, which pytest keeps for a while."""
        __tracebackhide__ = True
        try:
            result = compare(build, train_step, self.sizes, directory=self.directory, references=self.references, **options)
        except ShardfuzzError as error:
            failure = error
        else:
            if result:
                return result
            raise LayoutError(self, result)
        raise failure.with_traceback(None)  # the frames of this package say nothing to the test's author


def name_of(sizes) -> str:
    """dp2-tp1"""
    return "-".join(f"{axis}{size}" for axis, size in sizes.items())


def parametrize_layouts(**axes):
    """A decorator that runs a test once for each combination of the axes' sizes: parametrize_layouts(dp=[1, 2], tp=[1, 2]) gives four. The test takes the
    fixture `layout`. Axes are the dimensions of the mesh that build gets, outermost first. Raises ShardfuzzError for a size that is no number of ranks."""
    values = {axis: [sizes] if isinstance(sizes, int) else list(sizes) for axis, sizes in axes.items()}
    wrong = [(axis, size) for axis, sizes in values.items() for size in sizes if not isinstance(size, int) or size < 1]
    if not values or wrong or not all(values.values()):
        raise ShardfuzzError("parametrize_layouts wants axes with their sizes, such as parametrize_layouts(dp=[1, 2], tp=2)"
                             + (f"; {wrong[0][0]}={wrong[0][1]!r} is no size" if wrong else ""))
    layouts = [dict(zip(values, sizes)) for sizes in itertools.product(*values.values())]
    return pytest.mark.parametrize("layout", layouts, ids=map(name_of, layouts), indirect=True)


@pytest.fixture(scope="session")
def shardfuzz_references(tmp_path_factory):
    """References that the session's tests share."""
    return References(str(tmp_path_factory.mktemp("shardfuzz")))


@pytest.fixture
def layout(request, tmp_path, shardfuzz_references):
    """The layout of a test with @shardfuzz.parametrize_layouts."""
    if not isinstance(getattr(request, "param", None), dict):
        raise ShardfuzzError("the fixture `layout` needs the decorator @shardfuzz.parametrize_layouts(tp=[1, 2], ..)")
    return Layout(request.param, str(tmp_path), shardfuzz_references)
