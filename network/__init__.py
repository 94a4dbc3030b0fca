"""From a Compose or values file to a proven network policy.

Readers (`compose`, `values`, `isolation`, `cluster`) build one typed model, `verdicts` decides what each
service may
reach, `render` writes policy objects for one backend, `evaluate` computes the verdicts back from those
objects alone,
`probe` compares them with what a sandbox really reaches. Pure Python: nothing here opens a connection,
starts a
process or imports Pulumi or a Kubernetes client.
"""
