"""gRPC plumbing shared by every server and client: errors, interceptors, tokens, server and client set-up, logs.

Owns nothing of the domain: no queue, no sandbox, no judge. Rooms map their own exceptions to `WireError`.
"""
