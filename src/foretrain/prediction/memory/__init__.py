"""Peak memory of a device: tensor lifetimes, PyTorch's caching allocator, library workspaces."""
