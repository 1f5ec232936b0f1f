"""The estimator's options as command-line flags, one alias a field of ``Options``."""

from typing import Annotated

import typer

from manymatch.estimate.options import INGREDIENTS

_PANEL = "Estimator options"


def _flag(text: str) -> object:
    return typer.Option(help=text, rich_help_panel=_PANEL)


ThresholdPx = Annotated[float, _flag("Inlier threshold in pixels.")]
MinIterations = Annotated[int, _flag("Samples that are always drawn.")]
MaxIterations = Annotated[int, _flag("Samples that are drawn at most.")]
Confidence = Annotated[float, _flag("Wanted probability of one clean sample.")]
Safety = Annotated[float, _flag("Factor on the number of samples that confidence asks for.")]
PoolSize = Annotated[int, _flag("Hypotheses the two-stage method re-ranks.")]
Q = Annotated[float, _flag("Prior probability that a keypoint has a partner.")]
Delta = Annotated[float, _flag("Probability that a wrong candidate fits by chance.")]
Guidance = Annotated[
    float, _flag("Share of samples from rank-one candidates only; auto does not use it.")
]
Seed = Annotated[int, _flag("Random seed; the result depends on nothing else.")]
Threads = Annotated[int, _flag("Threads; 0 is all cores.")]
Without = Annotated[
    list[str] | None,
    typer.Option(
        help=f"A part of auto to leave out, of {', '.join(INGREDIENTS)}; may be repeated.",
        rich_help_panel=_PANEL,
        metavar="NAME",
        show_default=False,
    ),
]
