"""Files: read where they lie, written complete or not at all, within the limits of this process.

mapped_file.py  input files in memory maps, slices with checked bounds
chunks.py       arrays into files, a chunk at a time
files.py        outputs that appear complete or not at all, names of side files
atomic.py       how several files are published at once
strict_json.py  JSON that anybody may have written
toml.py         TOML that a user wrote
escape.py       text as one visible line
child.py        how Python processes are started
growth.py       how large an output may become, measured by its source
limits.py       memory and time of this process, axes of a tensor
progress.py     what this process is doing, for whoever shows it
protobuf.py     protobuf's wire format, without decoding messages
resources.py    the data files of this package
signals.py      signals that ask a process to end
"""
