"""The page's style: two sets of colours (light and dark), each with a contrast of at least 4.5 : 1 for text
(WCAG 2.2, success criterion 1.4.3; the test computes it).
"""

from __future__ import annotations

__all__ = ["DARK", "LIGHT", "STYLE"]

LIGHT = {
    "ground": "#ffffff",
    "card": "#f6f8fa",
    "text": "#1b1f24",
    "quiet": "#57606a",
    "line": "#d0d7de",
    "alone": "#8c959f",
    "paid": "#0969da",
    "good": "#116329",
    "bad": "#b3261e",
    "speculated": "#2da44e",
    "direct": "#54aeff",
    "bypassed": "#d4a72c",
    "refused": "#cf222e",
    "unsettled": "#afb8c1",
}
DARK = {
    "ground": "#0d1117",
    "card": "#161b22",
    "text": "#e6edf3",
    "quiet": "#9da7b3",
    "line": "#30363d",
    "alone": "#6e7681",
    "paid": "#4493f8",
    "good": "#56d364",
    "bad": "#ff7b72",
    "speculated": "#2ea043",
    "direct": "#1f6feb",
    "bypassed": "#9e6a03",
    "refused": "#da3633",
    "unsettled": "#484f58",
}


def _colours(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


_RULES = """
*{box-sizing:border-box}
body{margin:0 auto;max-width:860px;padding:24px 20px 64px;background:var(--ground);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{font-size:26px;margin:0}h2{font-size:18px;margin:0 0 12px}
header p{margin:2px 0 0;color:var(--quiet)}
section{margin-top:36px}
.lead{margin:0 0 12px}.lead strong{font-size:22px}
svg{display:block;width:100%;height:auto;margin:10px 0;overflow:visible}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--quiet)}
svg text.bad{fill:var(--bad);font-weight:600}
.grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--quiet);stroke-width:1}
.hatch{stroke:var(--ground);stroke-width:2.5;opacity:.55}
rect.alone{fill:var(--alone)}rect.paid{fill:var(--paid)}rect.loss{fill:var(--bad)}rect.saved{fill:var(--speculated)}
.span line{stroke:var(--paid);stroke-width:3}.span circle{fill:var(--paid)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:12px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px}
.tile span,.tile small{display:block;color:var(--quiet)}
.tile strong{display:block;font-size:24px;font-variant-numeric:tabular-nums}
.good{color:var(--good)}.bad{color:var(--bad)}
.notes{margin:12px 0 0;padding-left:20px}
.pair{display:flex;flex-wrap:wrap;gap:8px 40px;align-items:flex-start}
.legend{color:var(--quiet);margin:4px 0}
.key{display:inline-block;width:11px;height:11px;border-radius:2px;margin:0 7px 0 2px}
.legend .key+.key{margin-left:14px}
.key.alone{background:var(--alone)}.key.paid{background:var(--paid)}.key.loss{background:var(--bad)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;margin:8px 0}
th,td{padding:3px 16px 3px 0;text-align:left;font-weight:400;white-space:nowrap}
tbody th{max-width:260px;overflow:hidden;text-overflow:ellipsis}
thead th{color:var(--quiet);border-bottom:1px solid var(--line)}
.number{text-align:right;font-variant-numeric:tabular-nums}
td.words{white-space:normal}svg{min-width:560px}summary{cursor:pointer;color:var(--quiet);margin-top:6px}
"""
_KINDS = "".join(
    f"rect.kind-{name}{{fill:var(--{name})}}.key.kind-{name}{{background:var(--{name})}}"
    for name in ("speculated", "direct", "bypassed", "refused", "unsettled")
)

STYLE = (
    f":root{{color-scheme:light dark;{_colours(LIGHT)}}}"
    f"@media (prefers-color-scheme:dark){{:root{{{_colours(DARK)}}}}}{_RULES}{_KINDS}"
)
"""The whole style sheet."""
