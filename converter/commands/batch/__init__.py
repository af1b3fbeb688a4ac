"""Many conversions: planned from a job file, run by workers, resumable, one report.

plan.py      JOBS.toml or a folder -> jobs
run.py       one run from start to end
executor.py  threads that run the jobs in worker processes
pool.py      worker processes with limits
worker.py    one such process
cluster.py   the same jobs on dask.distributed
job.py       one job, and its outcome
work.py      the action of one job
staging.py   the files of a job: fetched, created, published
store.py     models in stores: fetched and replaced as a whole
content.py   hashes of everything that a job's result depends on
journal.py   the record of finished jobs
progress.py  the progress display
result.py    a batch as data

The job file is TOML. Paths and globs are relative to it; with --scheduler they may be URLs (s3://,
gs://, file://).

    out = "converted"                    # folder of the results; default: converted
    timeout = 600                        # seconds for one job; default: no limit
    memory = "4G"                        # memory that one job may take; default: no limit

    [[job]]                              # repeatable; timeout and memory are allowed here as well
    models = ["nets/**/*.onnx"]          # globs
    exclude = ["nets/old/*"]
    to = ["openvino+ir=7", "zhouyi"]     # targets with flavors
    action = "convert"                   # or "check" (nothing is written), "roundtrip", "quantize"
    from = "onnx"                        # default: detected from the content
    inputs = { image = [1, 3, 224, 224] }
    outputs = ["prob"]
    io-layout = "keep"
    verify = true                        # or a table: data, tensors, rtol, atol, metric, mode,
                                         # engine, seed, seeds
    quantize = { data = "calib" }        # of action = "quantize": the options of netconv quantize
"""
