#!/usr/bin/env python3
"""Reads report pages in headless Chromium, as people do: on a wide screen, on
a phone, in the dark, with the keyboard alone.

    browse.py PROGRAM [FOLDER]

FOLDER gets the screenshots. Exit code 77 when there is no Chromium.
"""
import base64
import pathlib
import subprocess
import sys
import tempfile

import chromium

# name, width, height, is a phone, colours
VIEWS = (("desktop", 1280, 900, False, "light"),
         ("desktop-dark", 1280, 900, False, "dark"),
         ("phone", 390, 844, True, "light"),
         ("phone-dark", 390, 844, True, "dark"))

# What is wrong with the page as it stands, in words.
CHECKS = r"""(() => {
  const bad = [];
  const page = document.scrollingElement;
  if (page.scrollWidth > page.clientWidth)
    bad.push(`the page is ${page.scrollWidth} wide, the window ` +
             page.clientWidth);
  // Contrast of WCAG 2: 4.5 for text.
  const rgb = c => (c.match(/[\d.]+/g) || []).map(Number);
  const light = c => { const [r, g, b] = rgb(c).map(v => {
      v /= 255; return v <= 0.03928 ? v / 12.92
                                    : Math.pow((v + 0.055) / 1.055, 2.4); });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (rgb(c)[3] !== 0) return c; }
    return getComputedStyle(document.documentElement).backgroundColor; };
  const tell = e => `"${e.textContent.trim().slice(0, 40)}"`;
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType == 3 &&
                                       n.data.trim());
    if (!own || !e.getClientRects().length) continue;
    const s = getComputedStyle(e), svg = e.ownerSVGElement;
    const a = light(svg ? s.fill : s.color), b = light(ground(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${tell(e)}: contrast ${ratio.toFixed(2)}`);
    const size = parseFloat(s.fontSize) * (svg ? svg.getScreenCTM().a : 1);
    if (size < 10 || (svg && size > 20))
      bad.push(`${tell(e)}: letters of ${size.toFixed(1)} pixels`);
  }
  // Labels of a chart must not cover each other, nor leave it.
  for (const svg of document.querySelectorAll('figure svg')) {
    const all = [...svg.querySelectorAll('text')].map(t =>
      [t, t.getBoundingClientRect()]);
    const box = svg.closest('figure').getBoundingClientRect();
    for (const [t, r] of all)
      if (r.left < box.left || r.right > box.right)
        bad.push(`${tell(t)} sticks out of its chart`);
    for (let i = 0; i < all.length; i++)
      for (let k = 0; k < i; k++) {
        const a = all[i][1], b = all[k][1], room = 2;
        if (a.left < b.right && b.left < a.right &&
            a.top < b.bottom - room && b.top < a.bottom - room)
          bad.push(`${tell(all[i][0])} covers ${tell(all[k][0])} in ` +
                   tell(svg.closest('figure').querySelector('figcaption')));
      }
  }
  for (const e of document.querySelectorAll('svg[role=img]'))
    if (!document.getElementById(e.getAttribute('aria-labelledby')))
      bad.push('a chart without a name');
  return bad;
})()"""

FOCUS = r"""(() => {
  const e = document.activeElement, s = getComputedStyle(e);
  return {tag: e.tagName, text: e.textContent.slice(0, 20),
          seen: s.outlineStyle != 'none' && parseFloat(s.outlineWidth) > 0};
})()"""


def runs(program, folder):
    """A run of four, one of a single worker, a sweep, a class and a number
    learned from a table; and their pages."""
    def hooke(*words):
        subprocess.run([program, *words], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)

    few = ("-q", "--set", "data.eval.count=200", "--set", "run.eval_steps=20")
    hooke("train", "--workers", "4", "--steps", "60", "-d", "four", *few)
    hooke("train", "--steps", "60", "-d", "one", *few)
    hooke("sweep", "--grid", "optimizer.learning_rate=0.01,0.05", "--steps",
          "20", "-d", "sweep", *few)
    for name, label in (("class", "x > 50"), ("number", "1000 * x - 20000")):
        rows = ((x, eval(label)) for x in (i * 37 % 100 for i in range(300)))
        (folder / f"{name}.csv").write_text(
            "x,y\n" + "".join(f"{x},{y}\n" for x, y in rows))
        hooke("train", f"{name}.csv", "--label", "y", "--epochs", "5", "-q",
              "-d", name)
        hooke("report", name, "-o", f"{name}.html")
    hooke("report", "four", "-o", "run.html")
    hooke("report", "one", "-o", "single.html")
    hooke("report", "one", "four", "-o", "compare.html")
    hooke("report", "sweep", "-o", "sweep.html")
    return [folder / f"{n}.html" for n in ("run", "single", "compare", "sweep",
                                           "class", "number")]


def load(b, page, view):
    _, width, height, phone, colors = view
    b.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
           deviceScaleFactor=2 if phone else 1, mobile=phone)
    b.call("Emulation.setEmulatedMedia",
           features=[{"name": "prefers-color-scheme", "value": colors}])
    b.events.clear()
    b.call("Page.navigate", url=page.as_uri())
    b.wait("Page.loadEventFired")


def complaints(b, page):
    """What the browser itself said, and what the page asked for."""
    for e in b.events:
        what = e.get("params", {})
        if e.get("method") == "Log.entryAdded":
            yield "log: " + what["entry"]["text"]
        elif e.get("method") == "Runtime.consoleAPICalled":
            yield f"console: {what['args']}"
        elif e.get("method") == "Runtime.exceptionThrown":
            yield "exception: " + what["exceptionDetails"]["text"]
        elif e.get("method") == "Network.requestWillBeSent":
            url = what["request"]["url"]
            if url != page.as_uri() and not url.startswith("data:"):
                yield "asks for " + url


def keyboard(b):
    """Tab reaches everything that can be used, and shows where it is."""
    wanted = b.evaluate("[...document.querySelectorAll('a, summary, "
                        "[tabindex]')].filter(e => e.checkVisibility())"
                        ".length")
    reached = []
    for _ in range(wanted):
        b.press("Tab", 9)
        at = b.evaluate(FOCUS)
        if not at["seen"]:
            yield f"no mark around {at['tag']} {at['text']!r}"
        reached.append(at["tag"])
    if "BODY" in reached:
        yield f"Tab reaches {reached.index('BODY')} of {wanted} elements"
    b.evaluate("document.querySelector('summary')?.focus()")
    before = b.evaluate("document.querySelector('details')?.open")
    b.press("Enter", 13)
    if before is not None and b.evaluate(
            "document.querySelector('details').open") == before:
        yield "Enter does not open and close the settings"


def screenshot(b, path):
    got = b.call("Page.captureScreenshot", format="png",
                 captureBeyondViewport=True)
    path.write_bytes(base64.b64decode(got["data"]))


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    shots = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    browser = chromium.find()
    if not browser:
        print("report_page: no Chromium here (Debian: chromium); skipped")
        return 77
    problems = 0
    with tempfile.TemporaryDirectory(prefix="hooke-report-") as folder:
        pages = runs(program, pathlib.Path(folder))
        b = chromium.Browser(browser)
        try:
            for page in pages:
                for view in VIEWS:
                    load(b, page, view)
                    bad = b.evaluate(CHECKS) + list(complaints(b, page))
                    if shots:
                        screenshot(b, shots / f"{page.stem}-{view[0]}.png")
                    bad += keyboard(b)
                    problems += len(bad)
                    print(f"{page.stem} {view[0]}: {len(bad)} problems")
                    for line in bad:
                        print("   ", line)
        finally:
            b.close()
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
