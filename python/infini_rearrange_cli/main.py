"""Arguments of the command, and which module serves each subcommand."""

from __future__ import annotations

import argparse
import sys


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="infini-rearrange",
        description="Contiguity of operator inputs on Ascend NPUs: what is copied, where, and what it costs.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="an MLA prefill step without and with the plugin")
    demo.add_argument("--json", action="store_true", help="print the figures as JSON")
    demo.add_argument("--sim", metavar="RUN", help="the simulated CANN's run script, used where there is no NPU")

    doctor = commands.add_parser("doctor", help="what is installed, what is missing, which contracts hold here")
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")

    report = commands.add_parser("report", help="the figures of a profile, per site")
    report.add_argument("path", nargs="+", help="profile files, or folders of them (INFINI_PROFILE_DIR)")
    report.add_argument("--json", action="store_true", help="print the merged figures as JSON")

    bench = commands.add_parser("bench", help="measure on this machine")
    kinds = bench.add_subparsers(dest="bench", required=True, metavar="WHAT")
    hook = kinds.add_parser("hook", help="host time of a FIA call with contiguous inputs, raw and hooked")
    hook.add_argument("--json", action="store_true", help="print the figures as JSON")
    hook.add_argument("--rounds", type=int, default=60, help="alternating rounds (default 60)")
    hook.add_argument("--calls", type=int, default=50, help="calls a round (default 50)")
    return top


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.command == "demo":
        from infini_rearrange_cli.demo import run
    elif options.command == "doctor":
        from infini_rearrange_cli.doctor import run
    elif options.command == "report":
        from infini_rearrange_cli.report import run
    else:
        from infini_rearrange_cli.bench_hook import run
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
