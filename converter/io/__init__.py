"""File access: inputs are mapped into memory, outputs appear complete or not at all, and the
limits of this process are kept.

mapped_file.py  input files in memory maps, slices with checked bounds
chunks.py       writing of arrays, a chunk at a time
digest.py       SHA-256 of short texts
files.py        outputs that appear complete or not at all, names of side files
atomic.py       publishing of several files at once
strict_json.py  JSON of untrusted origin
toml.py         TOML that a user wrote
escape.py       text as one visible line
child.py        start of Python processes
extras.py       commands that install optional packages
growth.py       limits for the size of an output, relative to its source
limits.py       memory and time of this process, axes of a tensor
progress.py     the current step of this process, for progress displays
protobuf.py     protobuf's wire format, without decoding messages
resources.py    the data files of this package
signals.py      termination requests
"""
