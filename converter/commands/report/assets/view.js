"use strict";
/* Draws the models of the page, searches them, and tells about what was chosen. */

const data = JSON.parse(document.getElementById("models").textContent);
const aside = document.getElementById("found"), hits = document.getElementById("hits");
const field = document.querySelector("input[type=search]"), count = document.querySelector("header output");
const two = data.models.length === 2;
const WORDS = { wrong: "wrong by itself", inherited: "inherits an error", noise: "within noise", equal: "equal", changed: "differs in structure", only: "only in this model" };
const MARKS = { wrong: "✕", inherited: "↓", changed: "≠", only: "+" };
const HITS = 60;

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/* A name that may break after its separators, and nowhere else. */
function named(tag, text) {
  const made = element(tag);
  for (const part of text.split(/(?<=[/._:;-])/)) made.append(part, document.createElement("wbr"));
  return made;
}

/* ---- drawings */

function describe(item) {
  if (item.scope) {
    const state = drawingOf(item).state(item), name = item.scope.name, layers = `${item.count} layers`;
    return { label: name, sub: layers, mark: MARKS[state] || "", title: [name, layers, WORDS[state]].filter(Boolean).join("\n") };
  }
  const n = item.node, shape = (n.out && n.out[0] && n.out[0][2]) || "";
  const title = [`${n.n} (${n.k})`, n.t ? `${n.t} in the file` : "", shape, WORDS[n.state], n.eo ? `own error ${n.eo}` : "", n.et ? `total error ${n.et}` : ""];
  return { label: n.port ? n.n : n.k, sub: n.port ? shape || n.k : n.n, port: n.port, mark: MARKS[n.state] || "", own: n.own, from: n.from, title: title.filter(Boolean).join("\n") };
}

let drawings = [];
const drawingOf = (item) => { let top = item; while (top.parent) top = top.parent; return top.drawing; };

function chosen(drawing, item) {
  tell(drawing, item);
  if (item.node) history.replaceState(null, "", "#" + encodeURIComponent(item.node.n));
  const twin = two && item.node && item.node.twin !== undefined ? other(drawing).nodes[item.node.twin] : null;
  if (twin) other(drawing).reveal(twin, { quiet: true });
}

const other = (drawing) => drawings.find((d) => d !== drawing);

document.querySelectorAll(".host").forEach((host, i) => {
  const model = data.models[i];
  drawings.push(new Drawing(host, model, { describe, wheel: "always", open: two ? 60 : 110, onChoose: (item) => chosen(drawings[i], item) }));
  Object.assign(drawings[i], { model, index: i });
});

/* ---- details */

const row = (name, ...content) => element("tr", {}, element("th", { scope: "row", textContent: name }), element("td", {}, ...content));
const rows = (...list) => element("table", {}, element("tbody", {}, ...list.filter(Boolean)));
const number = (v) => Number(v).toLocaleString("en");
const bytes = (v) => (v >= 1e6 ? `${(v / 1e6).toFixed(1)} MB` : v >= 1e3 ? `${(v / 1e3).toFixed(1)} kB` : `${v} bytes`);

function go(drawing, item, text) {
  const button = element("button", { type: "button", className: "go", textContent: text });
  button.onclick = () => drawing.reveal(item, { focus: true });
  return button;
}

function tell(drawing, item) {
  const parts = item.scope ? ofScope(drawing, item) : ofLayer(drawing, item);
  if (two && item.node) {
    const twin = item.node.twin === undefined ? null : other(drawing).nodes[item.node.twin];
    parts.unshift(element("p", { className: "dim", textContent: drawing.model.about.name }));
    parts.push(element("p", { className: "dim", textContent: twin ? `and in ${other(drawing).model.about.name}` : `has no counterpart in ${other(drawing).model.about.name}` }));
    if (twin) parts.push(...ofLayer(other(drawing), twin, true));
  }
  aside.replaceChildren(...parts);
  aside.scrollTop = 0;
}

function ofScope(drawing, scope) {
  const kinds = new Map(), states = new Map();
  const walk = (item) => {
    if (item.scope) return item.children.forEach(walk);
    kinds.set(item.node.k, (kinds.get(item.node.k) || 0) + 1);
    if (item.node.state) states.set(item.node.state, (states.get(item.node.state) || 0) + 1);
  };
  walk(scope);
  return [
    named("h2", scope.scope.name),
    element("p", { textContent: `${scope.count} layers` }),
    rows(...[...states].map(([s, n]) => row(WORDS[s] || s, String(n)))),
    element("h3", { textContent: "Operators" }),
    rows(...[...kinds].sort((a, b) => b[1] - a[1]).map(([k, n]) => row(k, String(n)))),
  ];
}

function ofLayer(drawing, item, twin = false) {
  const n = item.node, parts = [named(twin ? "h3" : "h2", n.port ? `${n.port} ${n.n}` : `${n.k} ${n.n}`)];
  if (n.causes && !twin) {
    const list = element("ul", {}, ...n.causes.map((text) => element("li", { textContent: text })));
    parts.push(element("div", { className: `causes ${n.state}` }, element("strong", { textContent: WORDS[n.state] || "" }), list));
  } else if (n.state) parts.push(element("p", { textContent: WORDS[n.state] }));
  parts.push(rows(n.t && row("in the file", n.t), n.w && row("place", n.w), n.eo && row("own error", n.eo), n.et && row("total error", n.et)));
  if (n.a) parts.push(element("h3", { textContent: "Attributes" }), rows(...n.a.map(([name, text]) => row(name, text))));
  for (const [title, list, near] of [["Inputs", n.in, item.into], ["Outputs", n.out, item.out]]) {
    if (!list || !list.length) continue;
    parts.push(element("h3", { textContent: title }), rows(...list.filter(([, , , w]) => w < 0).map(([label, name, shape]) => {
      const from = near.find((o) => title === "Inputs" && (o.node.out || []).some((t) => t[1] === name));
      return row(label || "tensor", from ? go(drawing, from, name) : name, ` ${shape}`);
    })));
  }
  const readers = [...new Set(item.out)];
  if (readers.length) parts.push(element("p", {}, "read by ", ...readers.slice(0, 12).flatMap((o, i) => [i ? ", " : "", go(drawing, o, o.node.n || o.node.k)]), readers.length > 12 ? ` and ${readers.length - 12} more` : ""));
  const weights = (n.in || []).filter(([, , , w]) => w >= 0);
  if (weights.length) parts.push(element("h3", { textContent: "Weights" }), ...weights.map(([label, , , w]) => weight(label, drawing.model.weights[w])));
  return parts;
}

/* One constant: its numbers, or their range and histogram. */
function weight(label, w) {
  const made = element("div", { className: "weight" }, element("p", {}, element("strong", { textContent: label }), ` ${w.n} `, element("span", { className: "dim", textContent: `${w.d}, ${bytes(w.bytes)}` })));
  if (w.values) made.append(element("p", { className: "mono", textContent: w.values.join(", ") }));
  if (w.bars) {
    const most = Math.max(...w.bars), step = (w.high - w.low) / w.bars.length;
    const bars = w.bars.map((n, i) => {
      const bar = element("i");
      bar.style.height = `${(n / most) * 100}%`;
      return element("li", { title: `${(w.low + i * step).toPrecision(4)} to ${(w.low + (i + 1) * step).toPrecision(4)}: ${number(n)}` }, bar);
    });
    made.append(element("ol", { className: "bars", ariaLabel: `histogram of ${w.n}` }, ...bars));
    made.append(element("p", { className: "dim", textContent: `${w.low} to ${w.high}, mean ${w.mean}, deviation ${w.std}, ${number(w.zeros)} of ${number(w.of)} are zero` }));
  }
  if (w.strange) made.append(element("p", { className: "s-bad", textContent: `${number(w.strange)} are infinite or not a number` }));
  return made;
}

/* What is told before anything is chosen. */
function overview() {
  aside.replaceChildren(...data.models.flatMap(({ about }) => [
    named("h2", about.name),
    rows(
      row("format", about.format),
      ...["inputs", "outputs"].flatMap((side) => about[side].slice(0, 12).map((t) => row(side.slice(0, -1), `${t.name} ${t.type}[${t.shape === null ? "?" : t.shape.map((d) => d ?? "?").join(",")}]`))),
      row("weights", `${number(about.weights.elements)} in ${bytes(about.weights.bytes)}`),
      row("operators", Object.entries(about.operators).sort((a, b) => b[1] - a[1]).map(([k, n]) => `${n} ${k}`).join(", ")),
    ),
  ]));
}

/* ---- legend, differences */

function legend() {
  const list = document.querySelector(".legend"), entry = (kind, text) => list.append(element("li", {}, element("i", { className: kind }), text));
  if (!two) { list.remove(); return; }
  const c = data.counts;
  entry("", `${c.same} the same`);
  entry("changed", `${c.changed} differ in structure ≠`);
  entry("only", `${c["only in the first"]} and ${c["only in the second"]} on one side only +`);
  if (!data.errors) return;
  entry("wrong", `${data.errors.wrong} wrong by themselves ✕`);
  entry("inherited", `${data.errors.inherited} inherit an error ↓`);
  entry("noise", `${data.errors.noise} within noise`);
  entry("equal", `${data.errors.equal} equal`);
  list.append(element("li", { className: "dim", textContent: "bars: own error to the left, total to the right" }));
}

function differences() {
  const found = drawings.flatMap((d) => d.nodes.filter((i) => ["wrong", "changed", "only"].includes(i.node.state) && !(d.index && i.node.state !== "only")).map((item) => ({ d, item })));
  found.sort((a, b) => (b.item.node.state === "wrong") - (a.item.node.state === "wrong"));
  const button = document.getElementById("next");
  if (!found.length) return;
  let at = -1;
  button.hidden = false;
  if (location.hash.length < 2) { // the first one is seen at once, on either side
    const { d, item } = found[0], twin = item.node.twin;
    d.reveal(item, { quiet: true });
    if (twin !== undefined) other(d).reveal(other(d).nodes[twin], { quiet: true });
  }
  button.onclick = () => {
    at = (at + 1) % found.length;
    found[at].d.reveal(found[at].item, { focus: false });
    count.textContent = `difference ${at + 1} of ${found.length}`;
  };
}

/* ---- search */

const known = drawings.flatMap((d) => d.nodes.map((item) => {
  const n = item.node, tensors = [...(n.in || []), ...(n.out || [])].map((t) => t[1]);
  return { d, item, text: [n.n, n.k, n.t || "", ...tensors].join(" ").toLowerCase() };
}));
let matches = [];

function search() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  matches = words.length ? known.filter((k) => words.every((w) => k.text.includes(w))) : [];
  hits.hidden = !matches.length;
  count.textContent = words.length ? `${matches.length} found` : "";
  hits.replaceChildren(...matches.slice(0, HITS).map(({ d, item }) => {
    const n = item.node, button = element("button", { type: "button", textContent: `${n.k} ${n.n}${two ? ` · ${d.model.about.name}` : ""}` });
    button.onclick = () => { hits.hidden = true; d.reveal(item, { focus: true }); };
    return element("li", {}, button);
  }));
  if (matches.length > HITS) hits.append(element("li", { className: "dim", textContent: `and ${matches.length - HITS} more` }));
}

field.oninput = search;
field.onkeydown = (e) => {
  if (e.key === "Enter" && matches.length) { hits.hidden = true; matches[0].d.reveal(matches[0].item, { focus: true }); }
  if (e.key === "ArrowDown" && !hits.hidden) { e.preventDefault(); hits.querySelector("button").focus(); }
  if (e.key === "Escape") { field.value = ""; search(); }
};
hits.onkeydown = (e) => {
  const all = [...hits.querySelectorAll("button")], at = all.indexOf(document.activeElement);
  if (e.key === "Escape") { hits.hidden = true; field.focus(); }
  if (e.key !== "ArrowDown" && e.key !== "ArrowUp") return;
  e.preventDefault();
  (all[at + (e.key === "ArrowDown" ? 1 : -1)] || field).focus();
};
document.addEventListener("click", (e) => { if (!e.target.closest("#hits, input")) hits.hidden = true; });

document.getElementById("fold").onclick = () => drawings.forEach((d) => d.foldAll(false));
document.getElementById("unfold").onclick = () => drawings.forEach((d) => d.foldAll(true));
if (!data.models.some((m) => m.scopes.length)) for (const id of ["fold", "unfold"]) document.getElementById(id).hidden = true;

legend();
overview();
differences();
if (location.hash.length > 1) {
  const name = decodeURIComponent(location.hash.slice(1)), found = known.find(({ item }) => item.node.n === name);
  if (found) found.d.reveal(found.item);
}
addEventListener("resize", () => drawings.forEach((d) => d._move()));
