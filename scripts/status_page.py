"""Pictures of the monitor's status page for the documents: ``python -m scripts.status_page`` writes
``docs/status-page*.png``.

The host's state is made up (``tests/support/monitor_states.py: busy``), so that the pictures change with the page only.
"""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from aiohttp import web
from PIL import Image

from monitor.web import add_routes
from scripts.prepare import ROOT
from tests.support.browser import find_browser, open_page, start_browser
from tests.support.monitor_states import busy

__all__ = ["main"]

# Name, width and height of the screen, colour scheme, and how much of the page is kept.
_PICTURES = (("status-page", 1280, 800, "light", 2400), ("status-page-phone", 390, 844, "dark", 1900))


async def _take(browser: str, folder: Path) -> None:
    app = web.Application()
    add_routes(app, busy(time.time()))
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        async with open_page(browser) as page:
            for name, width, height, scheme, most in _PICTURES:
                await page.look(width, height, scheme)
                await page.go(address)
                await page.until("document.querySelector('.chip') && document.querySelector('#flows-rows tr')")
                await asyncio.to_thread(_write, folder / f"{name}.png", await page.picture(), most)
    finally:
        await runner.cleanup()


def _write(path: Path, png: bytes, most: int) -> None:
    """With 256 colours it has a third of the size: the most frequent ones, which keeps each colour of the sheet as it
    is.
    """
    whole = Image.open(io.BytesIO(png)).convert("RGB")
    picture = whole.crop((0, 0, whole.width, min(whole.height, most)))
    pixels = picture.tobytes()
    counted = Counter(zip(pixels[::3], pixels[1::3], pixels[2::3], strict=True))
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for colour, _ in counted.most_common(256) for part in colour])
    picture.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {picture.width}x{picture.height}, {path.stat().st_size / 1024:.0f} KiB")


def main(arguments: list[str]) -> int:
    """Write the pictures into ``docs/``, or into the folder named."""
    program = find_browser()
    if program is None:
        print("there is no chromium here; `make prepare-dev` installs it", file=sys.stderr)
        return 1
    folder = Path(arguments[0]) if arguments else ROOT / "docs"
    with tempfile.TemporaryDirectory() as scratch, start_browser(program, Path(scratch)) as browser:
        asyncio.run(_take(browser, folder))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
