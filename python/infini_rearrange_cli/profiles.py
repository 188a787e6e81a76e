"""Reading profile files and merging those of several processes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

SCHEMA = "infini-rearrange.profile"
VERSION = 1
COUNTERS = (
    "calls",
    "contiguous",
    "copied",
    "copied_back",
    "captured",
    "replayed",
    "hidden",
    "refused",
    "passed",
    "bytes_copied",
    "bytes_copied_back",
    "bytes_replayed",
    "bytes_hidden",
    "timed",
    "bytes_timed",
    "ns_timed",
)
GRAPH_COUNTERS = ("captured", "live", "replays", "updates")
# A profile has some kilobytes a site; what is larger than this was not written by us.
LARGEST_FILE = 64 << 20


class ProfileError(Exception):
    """A file that is not a profile; the text names the file, what is wrong and what was expected."""


@dataclass
class Merged:
    """Figures of several processes, added up per site, and what could not be read."""

    processes: list[dict] = field(default_factory=list)
    graphs: dict = field(default_factory=dict)
    sites: list[dict] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def as_dict(self) -> dict:
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "processes": self.processes,
            "graphs": self.graphs,
            "sites": self.sites,
            "errors": self.errors,
        }


def read(path: Path) -> dict:
    """One profile, checked. Raises ProfileError."""
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise ProfileError(f"{path}: {size} bytes; a profile has at most {LARGEST_FILE}")
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"{path}: not JSON ({error}); expected a file written by infini_rearrange") from error
    return check(data, str(path))


def check(data: object, name: str) -> dict:
    """The data if it is a profile of the version this package reads. Raises ProfileError."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ProfileError(f'{name}: not a profile (no "schema": "{SCHEMA}")')
    if data.get("version") != VERSION:
        raise ProfileError(f"{name}: profile of version {data.get('version')}; this package reads version {VERSION}")
    if not isinstance(data.get("process", {}), dict):
        raise ProfileError(f'{name}: "process" must be an object')
    graphs = data.get("graphs", {})
    if not isinstance(graphs, dict):
        raise ProfileError(f'{name}: "graphs" must be an object')
    for counter in GRAPH_COUNTERS:
        _check_count(graphs.get(counter, 0), f"{name}: graphs.{counter}")
    sites = data.get("sites")
    if not isinstance(sites, list):
        raise ProfileError(f'{name}: "sites" must be a list')
    for site in sites:
        if not isinstance(site, dict) or not isinstance(site.get("site"), str):
            raise ProfileError(f'{name}: every entry of "sites" must be an object with a "site"')
        for counter in COUNTERS:
            _check_count(site.get(counter, 0), f"{name}: {site['site']}.{counter}")
        layouts = site.get("layouts", [])
        if not isinstance(layouts, list):
            raise ProfileError(f'{name}: "layouts" of {site["site"]} must be a list')
        for layout in layouts:
            _check_layout(layout, f"{name}: a layout of {site['site']}")
    return data


def _check_count(value: object, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ProfileError(f"{what} must be a whole number from 0, not {value!r}")


def _check_layout(layout: object, what: str) -> None:
    if not isinstance(layout, dict):
        raise ProfileError(f"{what} must be an object, not {layout!r}")
    _check_count(layout.get("count"), f'{what}: "count"')
    for key in ("dtype", "outcome", "diagnosis", "remedy"):
        if not isinstance(layout.get(key), str):
            raise ProfileError(f'{what}: "{key}" must be a string, not {layout.get(key)!r}')
    for key in ("shape", "strides"):
        value = layout.get(key)
        if not isinstance(value, list) or not all(isinstance(one, int) for one in value):
            raise ProfileError(f'{what}: "{key}" must be a list of whole numbers, not {value!r}')


def files(paths: list[str]) -> list[Path]:
    """The files named, and those of the folders named."""
    found: list[Path] = []
    for name in paths:
        path = Path(name)
        found += sorted(path.glob("*.json")) if path.is_dir() else [path]
    return found


def merge(profiles: list[dict]) -> Merged:
    """Adds up the counters of every site, and of every layout class."""
    merged = Merged()
    merged.graphs = {
        counter: sum(profile.get("graphs", {}).get(counter, 0) for profile in profiles) for counter in GRAPH_COUNTERS
    }
    sites: dict[str, dict] = {}
    for profile in profiles:
        merged.processes.append(profile.get("process", {}))
        for site in profile["sites"]:
            op, _, argument = site["site"].rpartition(".")
            into = sites.setdefault(
                site["site"],
                {"site": site["site"], "op": site.get("op", op), "arg": site.get("arg", argument), "layouts": []},
            )
            for counter in COUNTERS:
                into[counter] = into.get(counter, 0) + site.get(counter, 0)
            _merge_layouts(into["layouts"], site.get("layouts") or [])
    merged.sites = sorted(sites.values(), key=lambda site: (-moved(site), site["site"]))
    return merged


def _merge_layouts(into: list[dict], layouts: list[dict]) -> None:
    def key(layout: dict) -> tuple:
        return (
            layout.get("dtype"),
            str(layout.get("shape", [])[1:]),
            str(layout.get("strides")),
            layout.get("outcome"),
        )

    known = {key(layout): layout for layout in into}
    for layout in layouts:
        if key(layout) in known:
            known[key(layout)]["count"] += layout.get("count", 0)
        else:
            known[key(layout)] = dict(layout)
            into.append(known[key(layout)])
    into.sort(key=lambda layout: -layout.get("count", 0))


def moved(site: dict) -> int:
    """Bytes copied because of a site, by replays of graphs too, hidden copies included."""
    return copied(site) + site["bytes_hidden"]


def copied(site: dict) -> int:
    """Bytes of the copies that were made at a site, by replays of graphs too."""
    return site["bytes_copied"] + site["bytes_copied_back"] + site["bytes_replayed"]


def load(paths: list[str]) -> Merged:
    """Everything that can be read under the paths; what cannot is named in `errors`, and the rest is merged."""
    profiles, errors = [], []
    found = files(paths)
    if not found:
        errors.append(f"no profile (*.json) in {', '.join(paths)}")
    for path in found:
        try:
            profiles.append(read(path))
        except ProfileError as error:
            errors.append(str(error))
    merged = merge(profiles)
    merged.errors = errors
    return merged
