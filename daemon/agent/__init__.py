"""What an agent may do in its sandbox: commands, files, submit — each one recorded."""
