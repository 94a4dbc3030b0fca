"""What is kept: events, blobs, the audit ledger, and the services that read them."""
