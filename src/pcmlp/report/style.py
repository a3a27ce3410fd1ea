"""How our pictures look: one place for colours, fonts and what a finished axis is."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, StrMethodFormatter

# Okabe and Ito's colours, which most colour-blind readers can tell apart; dashes tell lines apart where they overlap.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", "--", ":", "-.")
_GREY = "#555555"


def figure(width: float, height: float) -> Figure:
    """Without pyplot: no window, no state shared between pictures."""
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def clean(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_GREY)
    axes.tick_params(colors=_GREY, labelsize=9)
    axes.grid(visible=True, color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)


def logarithmic(axes: Axes) -> None:
    """A y axis in powers of ten whose ticks are read as plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    for ticks in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        ticks(StrMethodFormatter("{x:g}"))
    axes.tick_params(which="minor", colors=_GREY, labelsize=9)


def title(picture: Figure, seen: str, made_by: str) -> None:
    """What is seen, and below it, smaller, what made it."""
    picture.suptitle(f"{seen}\n", fontsize=11, fontweight="bold", x=0.01, ha="left")
    picture.text(0.01, 1 - 0.25 / picture.get_figheight(), made_by, fontsize=9, color=_GREY, ha="left", va="top")


def save(picture: Figure, path: Path) -> Path:
    picture.savefig(path)
    return path
