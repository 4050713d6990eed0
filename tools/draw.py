"""Turns drawings made of text into SVG, for `build_site`: boxes of `┌─┐`, arrows of `─►`, and words."""

from __future__ import annotations

import re
from html import escape

WIDTH, HEIGHT = 8.4, 18.0
"""The pixels of a character."""
ARMS = {
    "─": "lr",
    "│": "ud",
    "┌": "rd",
    "┐": "ld",
    "└": "ur",
    "┘": "ul",
    "├": "udr",
    "┤": "udl",
    "┬": "lrd",
    "┴": "lru",
    "┼": "lrud",
    "►": "l",
    "◄": "r",
    "▲": "d",
    "▼": "u",
}
"""The sides to which the lines of a character lead from its middle: left, right, up, down."""
SIDES = {"l": (-0.5, 0.0), "r": (0.5, 0.0), "u": (0.0, -0.5), "d": (0.0, 0.5)}
HEADS = {"►": (4.0, 0.0), "◄": (-4.0, 0.0), "▲": (0.0, -6.0), "▼": (0.0, 6.0)}
"""The place of an arrow's tip, relative to the middle of the character."""
_WORDS = re.compile(rf"[^\s{''.join(ARMS)}]+(?: [^\s{''.join(ARMS)}]+)*")


def is_drawing(text: str) -> bool:
    """Return True if the text has a line of a box or an arrow."""
    return any(character in text for character in ARMS)


def svg(text: str) -> str:
    """Return the drawing as an SVG element. Its lines and words have the color of the text around it."""
    lines = text.rstrip("\n").split("\n")
    width, height = max(map(len, lines)) * WIDTH, len(lines) * HEIGHT
    parts = [part for row, line in enumerate(lines) for part in (*_strokes(line, row), *_words(line, row))]
    return (
        f'<svg class="drawing" role="img" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.1f} {height:.1f}" '
        f'width="{width:.0f}" height="{height:.0f}" stroke="currentColor" fill="currentColor">{"".join(parts)}</svg>'
    )


def _strokes(line: str, row: int) -> list[str]:
    """Return the lines and arrow heads of a row."""
    parts = []
    for column, character in enumerate(line):
        x, y = (column + 0.5) * WIDTH, (row + 0.5) * HEIGHT
        for side in ARMS.get(character, ""):
            dx, dy = SIDES[side]
            parts.append(f'<path d="M{x:.1f} {y:.1f}l{dx * WIDTH:.1f} {dy * HEIGHT:.1f}"/>')
        if character in HEADS:
            dx, dy = HEADS[character]
            base = f"{x - dy / 1.5:.1f},{y - dx:.1f} {x + dy / 1.5:.1f},{y + dx:.1f}"
            parts.append(f'<polygon points="{x + dx:.1f},{y + dy:.1f} {base}"/>')
    return parts


def _words(line: str, row: int) -> list[str]:
    """Return the words of a row. With any font, each run of words is as wide as its characters."""
    return [
        f'<text x="{found.start() * WIDTH:.1f}" y="{(row + 0.72) * HEIGHT:.1f}" stroke="none" '
        f'textLength="{len(found[0]) * WIDTH:.1f}" lengthAdjust="spacingAndGlyphs">{escape(found[0])}</text>'
        for found in _WORDS.finditer(line)
    ]
