"""Brings a machine from empty to ready, with the standard library only.

It runs before the project's own environment exists, so nothing here may import a third-party package. Each
part of the machine has one module with one `ensure_*` function that is safe to call again; `__main__` puts
them in order.
"""
