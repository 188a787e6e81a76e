"""Exceptions of the package."""


class NonContiguousError(RuntimeError):
    """A tensor does not meet what an operator demands, and the policy (or the operator) forbids to copy it.

    Raised before anything is launched. The text names the operator and argument, the layout, how the view came to be,
    what to change at the producer, and the directive that made it an error.
    """
