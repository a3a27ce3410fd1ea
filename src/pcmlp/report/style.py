"""The look of pictures and of the page's lines: colours, dashes, fonts, sizes, axes and titles."""

import math
import textwrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, StrMethodFormatter

# Okabe and Ito's colours, which most colour-blind readers can tell apart; dashes tell lines apart where they overlap.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", "--", ":", "-.")
WIDTH = 5.6  # inches: 9-point letters stay readable when a phone shows the picture
_GREY = "#555555"
_LETTERS_PER_INCH = 10.5  # of a title


def _colour_and_dash(i: int) -> tuple[int, int]:
    """Return the indices of line i's colour and dash; no pair repeats within 24 lines."""
    rounds = i // math.lcm(len(COLOURS), len(DASHES))
    return i % len(COLOURS), (i + rounds) % len(DASHES)


def css_classes(i: int) -> str:
    """Return the classes of line i in the page's style sheet."""
    colour, dash = _colour_and_dash(i)
    return f"c{colour} d{dash}"


def line_style(i: int) -> tuple[str, str]:
    """Return the colour and dash of line i in a picture."""
    colour, dash = _colour_and_dash(i)
    return COLOURS[colour], DASHES[dash]


def new_figure(height: float) -> Figure:
    """Return an empty figure, without pyplot: no window, and no state shared between pictures."""
    return Figure(figsize=(WIDTH, height), dpi=150, layout="constrained")


def clean(axes: Axes) -> None:
    """Give axes a light grid and two grey spines."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_GREY)
    axes.tick_params(colors=_GREY, labelsize=8)
    axes.grid(visible=True, color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.02)
    shrink_labels(axes)


def shrink_labels(axes: Axes) -> None:
    """Set the size of both axis labels."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_fontsize(9)


def integer_ticks() -> MaxNLocator:
    """Return a locator for iterations."""
    return MaxNLocator(integer=True, steps=[1, 2, 5, 10])


def set_log_scale(axes: Axes) -> None:
    """Make the y axis logarithmic, with plain numbers at its ticks."""
    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    for set_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        set_formatter(StrMethodFormatter("{x:g}"))
    axes.tick_params(which="minor", colors=_GREY, labelsize=8)


def set_title(figure: Figure, title: str, subtitle: str) -> None:
    """Write a title at the left, and a smaller subtitle below it."""
    lines = textwrap.wrap(title, int(_LETTERS_PER_INCH * WIDTH))
    figure.suptitle("\n".join([*lines, ""]), fontsize=11, fontweight="bold", x=0.01, ha="left")
    below = 1 - (0.08 + 0.185 * len(lines)) / figure.get_figheight()
    figure.text(0.01, below, subtitle, fontsize=9, color=_GREY, ha="left", va="top")


def remove_title(figure: Figure) -> None:
    """Remove what `set_title` wrote."""
    for text in figure.texts:
        text.set_text("")
