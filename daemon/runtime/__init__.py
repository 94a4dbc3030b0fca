"""The container runtime as a port: create, attach, observe and destroy sandboxes."""
