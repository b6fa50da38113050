"""The table of results: what | ours | peer | ratio | target | reached?"""

import dataclasses
import statistics

HEADINGS = ("what", "ours: median [min..max]", "peer: median [min..max]", "ratio", "target", "reached?")


def number(value):
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


@dataclasses.dataclass
class Figure:
    """One quantity, measured several times."""

    values: list
    unit: str
    who: str = ""

    @property
    def median(self):
        return statistics.median(self.values)

    def __str__(self):
        text = f"{number(self.median)} {self.unit}".rstrip()
        if len(self.values) > 1:
            text += f" [{number(min(self.values))}..{number(max(self.values))}]"
        return f"{self.who}: {text}" if self.who else text


@dataclasses.dataclass
class Row:
    """`ratio` is what the target speaks of, where it compares; `reached` None: there is no target, or nothing was measured."""

    what: str
    ours: Figure | str
    peer: Figure | str = ""
    ratio: str = ""
    target: str = ""
    reached: bool | None = None

    def cells(self):
        reached = {None: "", True: "yes", False: "NO"}[self.reached]
        return (self.what, str(self.ours), str(self.peer), self.ratio, self.target, reached)


def below(what, ours, limit, *, peer="", strict=True):
    """A row whose target is an upper limit, in the unit of the figure."""
    good = ours.median < limit if strict else ours.median <= limit
    word = "below" if strict else "at most"
    return Row(what, ours, peer, "", f"{word} {number(limit)} {ours.unit}".strip(), good)


def at_least(what, ours, limit, *, peer=""):
    ratio = f"{ours.median / peer.median:.1f}x" if isinstance(peer, Figure) else ""
    return Row(what, ours, peer, ratio, f"{number(limit)} {ours.unit}", ours.median >= limit)


def times_faster(what, ours, peer, times):
    """Both are durations."""
    ratio = peer.median / ours.median
    return Row(what, ours, peer, f"{ratio:.1f}x faster", f"{times}x faster" if times else "", ratio >= times if times else None)


def times_slower(what, ours, peer, times):
    ratio = ours.median / peer.median
    return Row(what, ours, peer, f"{ratio:.2f}x the time", f"within {times}x", ratio <= times)


def skipped(what, why, target=""):
    return Row(what, "skipped", why, "", target, None)


def render(rows):
    """As a Markdown table, aligned for a terminal too."""
    lines = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    text = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
    text.insert(1, " | ".join("-" * width for width in widths))
    return "\n".join(f"| {line} |" for line in text)
