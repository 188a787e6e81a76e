"""Ways in which a tensor comes to be strided. Each returns a view with the values of `tensor`, in storage of its own.

`expand` is the exception: the values of the first entry of one dimension stand for all of that dimension.
"""

import torch


def wider_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Columns of wider rows, as a slice of a fused projection."""
    last = tensor.shape[-1]
    base = torch.zeros(*tensor.shape[:-1], last + 48, dtype=tensor.dtype, device=tensor.device)
    view = base[..., 16 : 16 + last]
    view.copy_(tensor)
    return view


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The first two dimensions longer than 1 change places."""
    a, b = [dim for dim, size in enumerate(tensor.shape) if size > 1][:2]
    return tensor.transpose(a, b).contiguous().transpose(a, b)


def every_other(tensor: torch.Tensor) -> torch.Tensor:
    """Every other element: no dimension with stride 1."""
    base = torch.zeros(*tensor.shape[:-1], tensor.shape[-1] * 2, dtype=tensor.dtype, device=tensor.device)
    base[..., ::2].copy_(tensor)
    return base[..., ::2]


def expand(tensor: torch.Tensor) -> torch.Tensor:
    """The last dimension but one longer than 1 shares its first entry: stride 0."""
    dim = [dim for dim, size in enumerate(tensor.shape[:-1]) if size > 1][-1]
    return tensor.narrow(dim, 0, 1).clone().expand(tensor.shape)


KINDS = {"wider_rows": wider_rows, "transposed": transposed, "every_other": every_other, "expand": expand}
