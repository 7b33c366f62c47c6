"""page_layout.py FILE.html WIDTH: what a browser makes of a page, a line for each element that overflows or has nothing in it. Exits with 1
if there is any.

Chromium lays the page out, a script added to a copy measures it, and --dump-dom hands the result back."""
import html
import json
import os
import re
import subprocess
import sys
import tempfile

MEASURE = """<script>
//<![CDATA[
const seen = [];
const name = e => e.tagName + (e.id ? '#' + e.id : '') + ' "' + e.textContent.trim().slice(0, 40) + '"';
for (const d of document.querySelectorAll('details')) d.open = true;
const width = document.documentElement.scrollWidth;
if (width > window.innerWidth) seen.push('the page is wider than the window: ' + width);
for (const e of document.querySelectorAll('body *')) {
  const box = e.getBoundingClientRect(), svg = e.ownerSVGElement;
  if (svg && e.tagName == 'text') {
    const outer = svg.getBoundingClientRect();
    const leaves = box.left < outer.left - 1 || box.right > outer.right + 1 || box.top < outer.top - 1 || box.bottom > outer.bottom + 1;
    if (leaves) seen.push('text leaves its picture: ' + name(e));
  }
  if (svg || e.tagName == 'SCRIPT') continue;
  const scrolls = getComputedStyle(e).overflowX != 'visible';
  const overflows = e.tagName != 'svg' && !scrolls && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0;
  if (overflows) seen.push('overflows: ' + name(e));
  if (!e.textContent.trim() && !e.querySelector('svg *')) seen.push('empty: ' + name(e));
  if (e.tagName == 'svg' && (box.width < 20 || box.height < 10)) seen.push('a picture without size: ' + box.width + ' x ' + box.height);
}
document.body.setAttribute('data-seen', JSON.stringify(seen));
//]]>
</script>"""


def main(path, width):
    with open(path, encoding="utf-8") as file:
        page = file.read()
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "page.html")
        with open(copy, "w", encoding="utf-8") as file:
            file.write(page.replace("</main>", "</main>" + MEASURE))
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
                   f"--window-size={width},1200", "--dump-dom", "file://" + copy]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = re.search(r'<body data-seen="([^"]*)"', shown.stdout)
    if not found:
        print("Chromium did not show the page:", shown.stderr[-400:])
        return 1
    seen = json.loads(html.unescape(found.group(1)))
    for line in seen[:20]:
        print(line)
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
