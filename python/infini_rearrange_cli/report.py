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


def device_time(site: dict) -> str:
    """What the copies of a site took on the device, by the bytes of those that were timed; empty where none was."""
    if not site["bytes_timed"]:
        return ""
    milliseconds = site["ns_timed"] / site["bytes_timed"] * profiles.copied(site) / 1e6
    return f"{milliseconds:.3f} ms ({site['timed']} timed)"


# Heading, cell, and whether the column is there even where it says nothing.
COLUMNS = (
    ("site", lambda site: site["site"], True),
    ("calls", lambda site: str(site["calls"]), True),
    ("as it is", lambda site: str(site["contiguous"]), True),
    ("copied", lambda site: str(site["copied"]), True),
    ("back", lambda site: str(site["copied_back"]), True),
    ("captured", lambda site: str(site["captured"]), False),
    ("replayed", lambda site: str(site["replayed"]), False),
    ("hidden", lambda site: str(site["hidden"]), True),
    ("passed", lambda site: str(site["passed"]), True),
    ("refused", lambda site: str(site["refused"]), True),
    ("bytes copied", lambda site: human(site["bytes_copied"] + site["bytes_copied_back"]), True),
    ("bytes replayed", lambda site: human(site["bytes_replayed"]), False),
    ("bytes hidden", lambda site: human(site["bytes_hidden"]), True),
    ("device time", device_time, False),
)
NOTHING = ("", "0", "0 B")


def cells(merged: profiles.Merged) -> list[tuple[str, ...]]:
    """The table: headings, then one row a site, those that move most first."""
    columns = []
    for heading, cell, always in COLUMNS:
        column = [cell(site) for site in merged.sites]
        if always or any(text not in NOTHING for text in column):
            columns.append([heading, *column])
    return list(zip(*columns, strict=True))


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
    rows = cells(merged)
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for number, row in enumerate(rows):
        first = row[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([first, *rest]))
        if number == 0:
            lines.append("  ".join("-" * width for width in widths))
    if merged.graphs.get("replays") or merged.graphs.get("captured"):
        graphs = merged.graphs
        lines += ["", f"graphs: {graphs['captured']} captured, {graphs['live']} live, {graphs['replays']} replays, "]
        lines[-1] += f"{graphs['updates']} task group updates"
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
