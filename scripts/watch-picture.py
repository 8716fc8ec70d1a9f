#!/usr/bin/env python3
"""Draws the output of `unspin watch` on a terminal as a PNG. docs/watch.png comes from a guest of the lab
with four vCPUs on two pCPUs in virtual time, which ran `stress-ng --cpu 2` and then dbench:

    script -c 'stty cols 100 rows 30; unspin watch' typescript
    scripts/watch-picture.py typescript 100 30 docs/watch.png

Needs pyte, pillow and the font DejaVu Sans Mono.
"""

import sys
from pathlib import Path

import pyte
from PIL import Image, ImageDraw, ImageFont

FONTS = Path("/usr/share/fonts/truetype/dejavu")
SIZE = 14
MARGIN = 8
LEAVES_SCREEN = b"\x1b[?1049l"
BACKGROUND, TEXT = "#1e1e1e", "#d4d4d4"


def screen(typescript: bytes, columns: int, rows: int) -> pyte.Screen:
    """Returns the last screen before the program restored the terminal."""
    shown, _, _ = typescript.rpartition(LEAVES_SCREEN)
    result = pyte.Screen(columns, rows)
    # The first line comes from `script` itself.
    pyte.ByteStream(result).feed((shown or typescript).partition(b"\n")[2])
    return result


def colours(cell: pyte.screens.Char) -> tuple[str, str]:
    """Returns the colours of a cell's text and background."""
    text = TEXT if cell.fg == "default" else f"#{cell.fg}"
    background = BACKGROUND if cell.bg == "default" else f"#{cell.bg}"
    return (background, text) if cell.reverse else (text, background)


def picture(shown: pyte.Screen) -> Image.Image:
    fonts = [
        ImageFont.truetype(FONTS / name, SIZE)
        for name in ("DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf")
    ]
    width, height = round(fonts[0].getlength("M")), sum(fonts[0].getmetrics())
    size = (shown.columns * width + 2 * MARGIN, shown.lines * height + 2 * MARGIN)
    image = Image.new("RGB", size, BACKGROUND)
    draw = ImageDraw.Draw(image)
    for row in range(shown.lines):
        for column in range(shown.columns):
            cell = shown.buffer[row][column]
            text, background = colours(cell)
            x, y = MARGIN + column * width, MARGIN + row * height
            draw.rectangle((x, y, x + width - 1, y + height - 1), background)
            draw.text((x, y), cell.data, text, fonts[cell.bold])
    return image.quantize(256, Image.Quantize.FASTOCTREE)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(f"usage: {sys.argv[0]} TYPESCRIPT COLUMNS ROWS PNG")
    source, columns, rows, target = sys.argv[1:]
    shown = screen(Path(source).read_bytes(), int(columns), int(rows))
    picture(shown).save(target, optimize=True)
