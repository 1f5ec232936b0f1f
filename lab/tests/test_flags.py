"""Flags from signatures: forms of parameters, groups, shared values, refusals."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from manymatch.options import Options
from manymatch_lab.flags import SHARED, bind, real_numbers, signature_of, whole_numbers


@dataclasses.dataclass(frozen=True)
class Group:
    size: int = 3


class Opened:
    def __init__(self, **found: Any) -> None:
        self.found = found

    @classmethod
    def from_flags(
        cls, sets: Sequence[str], folder: Path, *, k: Annotated[int, SHARED] = 7
    ) -> "Opened":
        return cls(sets=sets, folder=folder, k=k)


def called(function, *arguments):
    """Run a command made of a function, and return what the function was called with."""
    flags = {}
    bound = bind(function, flags)
    seen = []

    def command(**given):
        values = {name: flags[name].convert(value) for name, value in given.items()}
        seen.append(bound({**values, "folder": Path("here"), "progress": None}))

    command.__signature__ = signature_of(flags)
    command.__annotations__ = {name: flag.annotation for name, flag in flags.items()}
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, [*map(str, arguments)])
    if result.exit_code:
        raise ValueError(result.stderr)
    return seen[0]


def test_a_number_may_be_a_word():
    def run(*, options: Options, step: float | Literal["auto"] = "auto") -> None:
        """Run."""

    for text, value in (("auto", "auto"), ("0.5", 0.5)):
        given = called(run, "--step", text, "--threshold-px", text)
        assert (given["step"], given["options"].threshold_px) == (value, value)
    given = called(run)
    assert (given["step"], given["options"]) == ("auto", Options())
    with pytest.raises(ValueError, match="it must be a number or auto, got 'wide'"):
        called(run, "--step", "wide")


def test_every_form_of_parameter():
    def run(
        *,
        count: int = 2,
        share: float | None = None,
        name: str = "a",
        place: Path | None = None,
        on: bool = True,
        many: Sequence[str] = (),
        numbers: Sequence[int] = (0,),
        bins: tuple[float, ...] = (0.0, 2.5),
        layers: tuple[int, ...] | None = None,
        progress: Any = 5,
    ): ...

    assert called(run) == {
        "count": 2, "share": None, "name": "a", "place": None, "on": True, "many": (),
        "numbers": (0,), "bins": (0.0, 2.5), "layers": None, "progress": None
    }  # fmt: skip
    given = called(
        run, "--count", 3, "--share", 0.5, "--place", "p", "--no-on", "--many", "x", "--many", "y",
        "--numbers", 4, "--bins", "1,2", "--layers", "2-4,1"
    )  # fmt: skip
    assert given["count"] == 3
    assert (given["share"], given["place"], given["on"]) == (0.5, Path("p"), False)
    assert (given["many"], given["numbers"]) == (("x", "y"), (4,))
    assert (given["bins"], given["layers"]) == ((1.0, 2.0), (1, 2, 3, 4))


def test_groups_are_made_of_their_flags_and_share_values():
    def run(sets: Opened, *, k: int = 5, group: Group | None = None): ...

    found = called(run, "a", "b", "--k", 2, "--size", 9)
    assert found["sets"].found == {"sets": ("a", "b"), "folder": Path("here"), "k": 2}
    assert found["group"] == Group(9)
    with pytest.raises(ValueError, match="Missing argument"):
        called(run)

    def alone(sets: Opened | None = None): ...

    assert called(alone) == {"sets": None}
    # Without a flag of that name a shared parameter keeps its default.
    assert called(alone, "a")["sets"].found["k"] == 7


def test_options_of_the_library():
    def run(*, options: Options | None = None): ...

    assert called(run)["options"] == Options()
    assert called(run, "--threshold-px", 2)["options"] == Options(threshold_px=2.0)
    # A budget below the usual minimum lowers it.
    small = called(run, "--max-iterations", 50)["options"]
    assert (small.min_iterations, small.max_iterations) == (50, 50)
    flags = {}
    bind(run, flags)
    assert not {"seed", "threads", "options"} & set(flags)


def test_numbers_are_read_and_refused():
    assert whole_numbers("5,1-3,2", "layers") == (1, 2, 3, 5)
    for bad in ("1-", "x", "1,,2", "-3"):
        with pytest.raises(ValueError, match="layers must be whole numbers or ranges"):
            whole_numbers(bad, "layers")
    with pytest.raises(ValueError, match="must hold at least one number"):
        whole_numbers("3-2", "layers")
    with pytest.raises(ValueError, match="bins must be numbers separated by commas, got 'a,b'"):
        real_numbers("a,b", "bins")
