"""`infini-rearrange report`: the figures of a profile as a table."""

from __future__ import annotations

import json
import sys

from infini_rearrange_cli import profiles


def human(count: int) -> str:
    """Bytes in decimal units."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.95 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


HEADINGS = (
    "site",
    "calls",
    "as it is",
    "copied",
    "back",
    "hidden",
    "passed",
    "refused",
    "bytes copied",
    "bytes hidden",
)


def rows(merged: profiles.Merged) -> list[tuple[str, ...]]:
    """The cells of the table, one row a site, those that move most first."""
    return [
        (
            site["site"],
            *(str(site[counter]) for counter in ("calls", "contiguous", "copied", "copied_back", "hidden", "passed")),
            str(site["refused"]),
            human(site["bytes_copied"] + site["bytes_copied_back"]),
            human(site["bytes_hidden"]),
        )
        for site in merged.sites
    ]


def layout_lines(merged: profiles.Merged) -> list[str]:
    """What was copied most at each site, how the view came to be, and what to change."""
    lines = []
    for site in merged.sites:
        for layout in site["layouts"][:3]:
            lines.append(
                f"{site['site']}: {layout['count']} × {layout['outcome']} {layout['dtype']} {layout['shape']} "
                f"strides {layout['strides']}: {layout['diagnosis']}"
            )
            lines.append(f"    avoid: {layout['remedy']}")
    return lines


def table(merged: profiles.Merged) -> str:
    """The table and the layouts as plain text."""
    cells = [HEADINGS, *rows(merged)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADINGS))]
    lines = []
    for number, row in enumerate(cells):
        first = row[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([first, *rest]))
        if number == 0:
            lines.append("  ".join("-" * width for width in widths))
    layouts = layout_lines(merged)
    if layouts:
        lines += ["", *layouts]
    return "\n".join(lines)


def run(options) -> int:
    merged = profiles.load(options.path)
    if options.json:
        print(json.dumps(merged.as_dict(), indent=2))
    elif merged.processes:
        print(f"{len(merged.processes)} process(es)")
        print(table(merged))
    for error in merged.errors:
        print(f"infini-rearrange report: {error}", file=sys.stderr)
    return 0 if merged.processes else 1
