"""The stacks' container images: what is in them, pinned, and a builder whose same input gives the same bits.

`build.ensure_image` is the way in. The supervisor's source lies beside it in `supervisor/` and is compiled into every
image as its last layer.
"""
