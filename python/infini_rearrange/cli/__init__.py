"""The command `infini-rearrange`."""

from infini_rearrange.cli.main import main

__all__ = ["main"]
