"""Settings classes: documented by the metadata of their fields, and closed to unknown names."""

import dataclasses

import pytest

from manymatch.associate.candidates import Association
from manymatch.features.feature_config import FeatureConfig
from manymatch.options import Options, setting, settings


@settings
@dataclasses.dataclass(frozen=True)
class Small:
    """Two settings.

    Examples
    --------
    >>> Small().size
    3
    """

    size: int = setting(3, "How large, from 1.", panel="First")
    names: tuple[str, ...] = setting((), "Which of them.", choices=("a", "b"))


def test_metadata_is_there_for_the_command_line():
    size, names = dataclasses.fields(Small)
    assert dict(size.metadata) == {"help": "How large, from 1.", "panel": "First", "choices": ()}
    assert names.metadata["choices"] == ("a", "b")
    assert Small() == Small(3, ())


def test_unknown_field_is_bad_input():
    with pytest.raises(ValueError, match=r"^sise is not a field of Small, did you mean 'size'; "):
        Small(sise=1)
    with pytest.raises(ValueError, match=r"^other is not a field of Small; the fields are size"):
        dataclasses.replace(Small(), other=1)


@pytest.mark.parametrize("cls", [Options, Association, FeatureConfig])
def test_every_setting_has_help_and_a_panel(cls):
    for field in dataclasses.fields(cls):
        assert field.metadata["help"].endswith(".")
        assert field.metadata["panel"]
        assert f"\n{field.name} : " in cls.__doc__
