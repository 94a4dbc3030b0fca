"""Renderers: one verdict matrix in, the policy objects of one backend out (`cilium`, `gke`,
`kubernetes`, `docker`).
"""
