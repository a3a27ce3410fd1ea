"""How our pictures look: one place for colours, fonts, sizes and what a finished axis is."""

import math
import textwrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, StrMethodFormatter

# Okabe and Ito's colours, which most colour-blind readers can tell apart; dashes tell lines apart where they overlap.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", "--", ":", "-.")
WIDTH = 5.6  # inches: letters of 9 points can still be read when a phone shows the picture
_GREY = "#555555"
_LETTERS_PER_INCH = 10.5  # of a title


def pair(i: int) -> tuple[int, int]:
    """The numbers of the colour and the dash of line i: the pairs come again after all 24."""
    rounds = i // math.lcm(len(COLOURS), len(DASHES))
    return i % len(COLOURS), (i + rounds) % len(DASHES)


def look(i: int) -> str:
    """For the page: classes of its style sheet."""
    colour, dash = pair(i)
    return f"c{colour} d{dash}"


def line(i: int) -> tuple[str, str]:
    """For pictures: colour and dash."""
    colour, dash = pair(i)
    return COLOURS[colour], DASHES[dash]


def figure(height: float) -> Figure:
    """Without pyplot: no window, no state shared between pictures."""
    return Figure(figsize=(WIDTH, height), dpi=150, layout="constrained")


def clean(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_GREY)
    axes.tick_params(colors=_GREY, labelsize=8)
    axes.grid(visible=True, color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.02)
    small_labels(axes)


def small_labels(axes: Axes) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_fontsize(9)


def whole_numbers() -> MaxNLocator:
    """Ticks for iterations."""
    return MaxNLocator(integer=True, steps=[1, 2, 5, 10])


def logarithmic(axes: Axes) -> None:
    """A y axis in powers of ten whose ticks are read as plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    for ticks in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        ticks(StrMethodFormatter("{x:g}"))
    axes.tick_params(which="minor", colors=_GREY, labelsize=8)


def title(picture: Figure, seen: str, made_by: str) -> None:
    """What is seen, and below it, smaller, what made it."""
    lines = textwrap.wrap(seen, int(_LETTERS_PER_INCH * WIDTH))
    picture.suptitle("\n".join([*lines, ""]), fontsize=11, fontweight="bold", x=0.01, ha="left")
    below = 1 - (0.08 + 0.185 * len(lines)) / picture.get_figheight()
    picture.text(0.01, below, made_by, fontsize=9, color=_GREY, ha="left", va="top")


def untitle(picture: Figure) -> None:
    """Without what `title` has written."""
    for text in picture.texts:
        text.set_text("")
