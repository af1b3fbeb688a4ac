"""Looks up known vulnerabilities of what netconv is installed with.

    python .ci/audit.py SITE-PACKAGES

Exit code 1: there are some, or the tool failed in another way than for want of an answer. Where the
service does not answer nothing is audited, which is said as a warning; exit code 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

# what pip-audit says when it has no answer
UNREACHABLE = ("ConnectionError", "ServiceError", "Max retries exceeded", "timed out", "HTTPError")


def main(folder: str) -> int:
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "audit.json"
        command = [sys.executable, "-P", "-m", "pip_audit", "--path", folder, "--progress-spinner"]
        command += ["off", "--skip-editable", "--format", "json", "--output", str(report)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = json.loads(report.read_text()) if report.exists() else None
    if found is None:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        reachable = not any(word in done.stderr for word in UNREACHABLE)
        level, text = ("error", "failed") if reachable else ("warning", "could not be reached")
        print(f"::{level}::nothing was audited, the service {text}: {reason}")
        return int(reachable)
    wrong = [p for p in found["dependencies"] if p.get("vulns")]
    for package in wrong:
        known = ", ".join(v["id"] for v in package["vulns"])
        print(f"::error::{package['name']} {package['version']}: {known}")
    print(f"{len(found['dependencies'])} packages audited, {len(wrong)} with known vulnerabilities")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
