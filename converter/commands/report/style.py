"""How the HTML page looks, and the one thing it does: searching a table of layers."""

CSS = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#5c6670;--line:#d5dae0;--soft:#f3f5f7;
--ok:#18794e;--bad:#c62a2f;--warn:#946800;--own:#c62a2f;--total:#3a6fd8}
@media(prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e4e8ec;--dim:#9aa5b1;--line:#343b43;--soft:#1d2226;
--ok:#4cc38a;--bad:#ff7a7f;--warn:#f0c000;--own:#ff7a7f;--total:#7aa5ff}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:70rem;padding:1rem;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:1.5rem 0 .4rem}h3{font-size:1rem;margin:1.1rem 0 .3rem}
.dim{color:var(--dim)}.s-ok{color:var(--ok)}.s-bad{color:var(--bad)}.s-warn{color:var(--warn)}.verdict{font-weight:600}
.wide{overflow-x:auto}table{border-collapse:collapse;min-width:20rem}
th,td{text-align:left;padding:.2rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
th{background:var(--soft);font-weight:600}td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
pre{background:var(--soft);padding:.6rem;overflow-x:auto;margin:.4rem 0;font:13px/1.45 ui-monospace,monospace}
section{border-top:2px solid var(--line);margin-top:1.5rem}summary{cursor:pointer}
svg{width:100%;height:auto;max-width:60rem;display:block}svg text{fill:var(--dim);font:11px system-ui,sans-serif}
.own{stroke:var(--own);fill:none}.total{stroke:var(--total);fill:none}.limit{stroke:var(--dim);fill:none;stroke-dasharray:3 3}
.first{stroke:var(--own);stroke-dasharray:2 2}.axis{stroke:var(--line)}
input{font:inherit;width:100%;max-width:24rem;padding:.3rem .5rem;color:inherit;background:var(--bg);border:1px solid var(--line);margin:.3rem 0}
@media(max-width:40rem){body{padding:.6rem;font-size:14px}th,td{padding:.2rem .35rem}}
"""

SCRIPT = """
for(const t of document.querySelectorAll('table.layers')){const i=document.createElement('input');i.type='search';i.placeholder='search layers';
i.setAttribute('aria-label','search layers');
i.oninput=()=>{const q=i.value.toLowerCase();for(const r of t.tBodies[0].rows)r.hidden=!r.textContent.toLowerCase().includes(q)};
t.parentNode.before(i)}
"""
