"""Draws the figures of harness/docs/tolerance.md from what bench_ratio and bench_sensitivity --ladder 1 printed.

    python3 tests/bench/oracles/plot_tolerance.py --figures RATIO.json SENSITIVITY.json    # takes new figures into tolerance.json, then draws
    python3 tests/bench/oracles/plot_tolerance.py                                          # draws what tolerance.json has
    python3 tests/bench/oracles/plot_tolerance.py --check                                  # exit 1 where a drawing is not that of tolerance.json
"""
import json
import math
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from line import last_object

FIGURES = Path(__file__).with_name("tolerance.json")
DOCS = Path(__file__).parents[3] / "harness" / "docs"
CONDITIONS = [f"{precision}_{mode}" for precision in ("fp32", "bf16", "fp16", "fp8") for mode in ("isolated", "e2e")]
COLOURS = {"fp32": "#1f5fa8", "bf16": "#c25a12", "fp16": "#2c8a4b", "fp8": "#9a3fa0"}
ALARM = {"fro": 3, "row": 6}
QUANTILES = ["p50", "p99", "p999", "max"]
QUANTILE_NAMES = {"p50": "median", "p99": "99 %", "p999": "99.9 %", "max": "largest"}
SHAPES = {"p50": 4, "p99": 5, "p999": 6, "max": 8}
WIDTH, LEFT, RIGHT = 860, 150, 30


def label(condition):
    precision, mode = condition.split("_")
    return f"{precision} {'end to end' if mode == 'e2e' else mode}"


def share_of_alarm(ratio, condition, quantile):
    """Of the worst kind of tensor, the worse of the two measures and of the two seeds, over the alarm's factor."""
    kinds = [kind for half in ("first_half", "unseen_half") for kind in ratio[half][condition].values()]
    shares = [kind[measure]["level2"][quantile] / factor
              for kind in kinds for measure, factor in ALARM.items() if kind.get(measure, {}).get("level2", {}).get("count")]
    return max(shares, default=None)


def figures_of(ratio, sensitivity):
    """What the drawings need: shares of the alarm bound and the curves of scaled tensors."""
    return {
        "made_by": {"clean": ratio["command"], "sensitivity": sensitivity["command"]},
        "clean": {c: {q: share_of_alarm(ratio, c, q) for q in QUANTILES} for c in CONDITIONS},
        "sensitivity": {c: [[point["d"], point["flagged_share"]] for point in sensitivity[c].get("ladder", [])] for c in CONDITIONS},
        "sensitivity_tensors": {c: sensitivity[c].get("ladder_tensors", 0) for c in CONDITIONS},
    }


class Svg:
    """Elements of one drawing, with a logarithmic horizontal axis from 2^low to 2^high."""

    def __init__(self, height, low, high, title):
        self.height, self.low, self.high = height, low, high
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="DejaVu Sans, Verdana, sans-serif" '
                      f'font-size="13" role="img" aria-label="{title}">', f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>']

    def x(self, value):
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log2(value) - self.low) / (self.high - self.low)

    def line(self, x1, y1, x2, y2, colour="#d5dbe1", width=1, dash=""):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"'
                          + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")

    def text(self, x, y, text, anchor="start", colour="#1c2b3a"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>')

    def circle(self, x, y, radius, colour, filled=True):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour if filled else "#ffffff"}" stroke="{colour}" stroke-width="1.5"/>')

    def curve(self, points, colour, dash):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"' + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")

    def done(self):
        return "\n".join([*self.parts, "</svg>", ""])


def draw_clean(figures):
    step, top = 34, 60
    bottom = top + step * len(CONDITIONS)
    svg = Svg(bottom + 60, -7, 0.35, "Error of correct runs as a share of the alarm bound")
    for power in range(-7, 1):
        svg.line(svg.x(2.0**power), top - 14, svg.x(2.0**power), bottom)
        svg.text(svg.x(2.0**power), bottom + 18, {0: "1", -7: "1/128 or less"}.get(power, f"1/{2**-power}"), "middle")
    svg.line(svg.x(1), top - 14, svg.x(1), bottom, "#c0392b", 3)
    svg.text(svg.x(1) - 6, top - 20, "alarm", "end", "#c0392b")
    svg.text((LEFT + WIDTH - RIGHT) / 2, bottom + 42, "error as a share of the alarm bound, worst kind of tensor", "middle")
    for at, quantile in enumerate(QUANTILES):
        svg.circle(LEFT + 90 * at + 8, 20, SHAPES[quantile], "#33475b", quantile != "p50")
        svg.text(LEFT + 90 * at + 22, 25, QUANTILE_NAMES[quantile])
    for at, condition in enumerate(CONDITIONS):
        draw_clean_row(svg, top + step * at + step / 2 - 8, condition, figures["clean"][condition])
    return svg.done()


def draw_clean_row(svg, y, condition, shares):
    colour = COLOURS[condition.split("_")[0]]
    svg.text(LEFT - 12, y + 5, label(condition), "end")
    shown = {q: max(shares[q], 2.0**svg.low) for q in QUANTILES if shares[q] is not None}
    if not shown:
        return
    svg.line(svg.x(min(shown.values())), y, svg.x(max(shown.values())), y, colour, 2)
    for quantile, share in shown.items():
        svg.circle(svg.x(share), y, SHAPES[quantile], colour, quantile != "p50")


def draw_sensitivity(figures):
    top, bottom = 34, 344
    svg = Svg(bottom + 96, -26, -2, "Share of tensors that are flagged when scaled by 1 + d")
    for percent in range(0, 101, 25):
        y = bottom - (bottom - top) * percent / 100
        svg.line(LEFT, y, WIDTH - RIGHT, y)
        svg.text(LEFT - 10, y + 5, f"{percent} %", "end")
    for power in range(-7, 0):
        svg.line(svg.x(10.0**power), bottom, svg.x(10.0**power), bottom + 6, "#33475b")
        svg.text(svg.x(10.0**power), bottom + 22, f"1e{power}", "middle")
    svg.line(svg.x(0.083), top, svg.x(0.083), bottom, "#c0392b", 2, "3 3")
    svg.text(svg.x(0.083), top - 12, "flat bound of 8.3 %", "middle", "#c0392b")
    svg.text((LEFT + WIDTH - RIGHT) / 2, bottom + 44, "d: all of a tensor times 1 + d", "middle")
    for at, condition in enumerate(CONDITIONS):
        precision, mode = condition.split("_")
        dash = "7 4" if mode == "e2e" else ""
        svg.curve([(svg.x(d), bottom - (bottom - top) * share) for d, share in figures["sensitivity"][condition]], COLOURS[precision], dash)
        x, y = LEFT + 170 * (at // 2), bottom + 64 + 20 * (at % 2)
        svg.curve([(x, y), (x + 30, y)], COLOURS[precision], dash)
        svg.text(x + 38, y + 5, label(condition))
    return svg.done()


DRAWINGS = {"tolerance-clean.svg": draw_clean, "tolerance-sensitivity.svg": draw_sensitivity}


def main(arguments):
    if arguments[:1] == ["--figures"]:
        FIGURES.write_text(json.dumps(figures_of(*map(last_object, arguments[1:3])), indent=1) + "\n", encoding="utf-8")
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    for name, draw in DRAWINGS.items():
        drawing = draw(figures)
        if arguments == ["--check"] and (DOCS / name).read_text(encoding="utf-8") != drawing:
            print(f"{DOCS / name} is not what {FIGURES} says: run tests/bench/oracles/plot_tolerance.py", file=sys.stderr)
            return 1
        if arguments != ["--check"]:
            (DOCS / name).write_text(drawing, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
