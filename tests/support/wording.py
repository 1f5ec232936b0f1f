"""What every text for people has to be like."""

import re

_NOUNS = (
    *("pair", "image", "keypoint", "candidate", "inlier", "error", "sample", "line", "iteration"),
    *("edge", "file", "entry", "scene", "size"),
)
_PLURALS = {**{noun: f"{noun}s" for noun in _NOUNS}, "match": "matches", "entry": "entries"}
_KIND = r"(?:(?:one-to-one|more|other|distinct|consistent|resolved) )?"
_ONE_OF_SEVERAL = re.compile(rf"(?<![\d.,])1 {_KIND}({'|'.join(_PLURALS.values())})\b")
_SEVERAL_OF_ONE = re.compile(rf"(?<![\w.,-])(?!1 )[\d,]+ {_KIND}({'|'.join(_PLURALS)})\b(?!-)")
# What a number or a part that is not there leaves behind.
_FAULTS = {
    "two spaces": r"\s\s",
    "a space at an end": r"^\s|\s$",
    "a space before a mark": r"\s[.,;:!?)°]",
    "a space after a bracket": r"\(\s",
    "nothing in brackets or quotes": r"\(\)|''|\"\"",
    "two marks": r"[,;:][.,;:]|\.\.|\.[,;:]",
    "a number that is none": r"(?<![A-Za-z])([Nn]a[Nn]|[Ii]nf|[Ii]nfinity|None)(?![A-Za-z])",
    "a negative zero": r"(?<![\w.])-0(\.0+)?(?![\d.])",
    "an exponent": r"\de[+-]?\d",
    "an empty part": r"\b(mostly|and|about|by|in|to|of) (and|,|\.)",
    "agreement of nothing": r"(?<![\d.,])0 matches (agree|could)",
}


def assert_reads_well(text):
    """Check punctuation, numbers, singular and plural of any text for people."""
    for fault, pattern in _FAULTS.items():
        assert not re.search(pattern, text), f"{fault}: {text!r}"
    assert not _ONE_OF_SEVERAL.search(text), text
    assert not _SEVERAL_OF_ONE.search(text), text
    depth = 0
    for mark in text:
        depth += (mark == "(") - (mark == ")")
        assert depth in (0, 1), text
    assert depth == 0, text


def assert_sentence(text):
    """Check that a text is one line, begins with a capital or a number and ends with a stop."""
    assert_reads_well(text)
    assert re.fullmatch(r"[A-Z0-9][^\n]*[^.\n]\.", text), text
