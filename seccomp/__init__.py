"""The system call filter of every sandbox: the requirement's list, our deviations with their reasons, the
generator.

`spec-v2.json` is the required list as it was written; `deviations.py` says name by name what differs and why;
`generate.py` joins both into `profile.json`, the file Docker is given.
"""
