"""Many conversions: planned from a job file, run by workers, resumable, one report.

plan.py      JOBS.toml or a folder -> jobs
run.py       one run from start to end
executor.py  what runs the jobs: threads with worker processes
pool.py      worker processes with limits
worker.py    one such process
cluster.py   the same jobs on dask.distributed
job.py       one job, and what became of it
work.py      what one job does
staging.py   a job's files: fetched, made aside, published
store.py     models in stores: fetched and replaced as a whole
content.py   what a job's result depends on, as hashes
journal.py   what is done already
progress.py  what is shown meanwhile
result.py    a batch as data

The job file is TOML. Paths and globs are relative to it; with --scheduler they may be URLs (s3://,
gs://, file://).

    out = "converted"                    # folder of the results; default: converted
    timeout = 600                        # seconds for one job; default: no limit
    memory = "4G"                        # memory that one job may take; default: no limit

    [[job]]                              # repeatable; timeout and memory may stand here as well
    models = ["nets/**/*.onnx"]          # globs
    exclude = ["nets/old/*"]
    to = ["openvino+ir=7", "zhouyi"]     # targets with flavours
    action = "convert"                   # or "check" (nothing is written), or "roundtrip"
    from = "onnx"                        # otherwise told from the content
    inputs = { image = [1, 3, 224, 224] }
    outputs = ["prob"]
    io-layout = "keep"
    verify = true                        # or a table: data, tensors, rtol, atol, metric, mode,
                                         # engine, seed, seeds
"""
