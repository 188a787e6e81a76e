"""The command `infini-rearrange`: a package of its own, since it must run where the library cannot be loaded."""

from infini_rearrange_cli.main import main

__all__ = ["main"]
