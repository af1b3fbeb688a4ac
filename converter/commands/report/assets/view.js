"use strict";
/* Draws the models of the page, searches them, and tells about what was chosen. */

const data = JSON.parse(document.getElementById("models").textContent);
const aside = document.getElementById("found"), hits = document.getElementById("hits");
const field = document.querySelector("input[type=search]"), count = document.querySelector("header output");
const two = data.models.length === 2;
const WORDS = { ...data.words, changed: "differs in structure", only: "only in this model" };
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

const inner = (item) => (item.scope ? item.children.flatMap(inner) : [item]);

/* A layer of the file that is several operators here: [operator of the file, name, main operator]. */
function fileLayer(item) {
  const found = item.scope && item.scope.kind === "layer" && /^(.*) \((.*)\)$/s.exec(item.scope.name);
  if (!found) return null;
  const parts = inner(item).map((i) => i.node), rank = (n) => ["shape", "activation", "types and quantization"].indexOf(data.families[n.f]);
  const main = parts.find((n) => rank(n) < 0) || [...parts].sort((a, b) => rank(b) - rank(a))[0];
  return [found[2], found[1], main];
}

/* The operator as the file calls it, but for a part of what is one layer there. */
const operator = (item) => (item.parent.scope && item.parent.scope.kind === "layer" ? item.node.k : item.node.t || item.node.k);
const shapeOf = (n) => (n.out && n.out[0] && n.out[0][2]) || "";

function describe(item) {
  if (item.scope) {
    const state = drawingOf(item).state(item), layer = fileLayer(item), count = `${item.count} ${layer ? "operators" : "layers"}`;
    const [label, sub] = layer ? layer : [item.scope.name, count];
    return { label, sub, family: layer ? layer[2].f : undefined, mark: MARKS[state] || "", title: [label, sub, layer && count, WORDS[state]].filter(Boolean).join("\n") };
  }
  const n = item.node, shape = shapeOf(n), label = n.port ? n.n : operator(item);
  const title = [`${n.n} (${label})`, label !== n.k ? `${n.k} in ONNX` : "", shape, WORDS[n.state], n.eo ? `error introduced here ${n.eo}` : "", n.et ? `total error ${n.et}` : ""];
  return { label, sub: n.port ? shape || n.k : n.n, family: n.f, port: n.port, mark: MARKS[n.state] || "", own: n.own, from: n.from, title: title.filter(Boolean).join("\n") };
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
  const name = model.about.name.split(/[\\/]/).pop();
  drawings.push(new Drawing(host, model, { describe, name, wheel: "always", open: two ? 60 : 110, onChoose: (item) => chosen(drawings[i], item) }));
  Object.assign(drawings[i], { model, index: i });
});

/* ---- details */

const row = (name, ...content) => element("tr", {}, element("th", { scope: "row", textContent: name }), element("td", {}, ...content));
const rows = (...list) => element("table", {}, element("tbody", {}, ...list.filter(Boolean)));
const number = (v) => Number(v).toLocaleString("en");
const bytes = (v) => (v >= 1e6 ? `${(v / 1e6).toFixed(1)} MB` : v >= 1e3 ? `${(v / 1e3).toFixed(1)} kB` : `${v} bytes`);

/* TensorFlow Lite joins the names of fused layers. */
const brief = (name) => (name.includes(";") ? `${name.slice(0, name.indexOf(";"))}; …` : name);

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
  const kinds = new Map(), states = new Map(), layer = fileLayer(scope);
  for (const { node } of inner(scope)) {
    kinds.set(node.t || node.k, (kinds.get(node.t || node.k) || 0) + 1);
    if (node.state) states.set(node.state, (states.get(node.state) || 0) + 1);
  }
  const found = rows(...[...states].map(([s, n]) => row(WORDS[s] || s, String(n))));
  if (layer) return [named("h2", `${layer[0]} ${layer[1]}`), element("p", { textContent: `One layer of the file is ${scope.count} operators in ONNX.` }), found, rows(row("location", inner(scope)[0].node.w || "")), ...inner(scope).flatMap((i) => ofLayer(drawing, i, true, true))];
  return [
    named("h2", scope.scope.name),
    element("p", { textContent: `${scope.count} layers` }),
    found,
    element("h3", { textContent: "Operators" }),
    rows(...[...kinds].sort((a, b) => b[1] - a[1]).map(([k, n]) => row(k, String(n)))),
  ];
}

/* Attributes, tensors and weights of a layer; of its counterpart (twin), or of an operator that is a
   part of it. */
function ofLayer(drawing, item, twin = false, part = false) {
  const n = item.node, parts = [named(twin ? "h3" : "h2", n.port ? `${n.port} ${n.n}` : part ? n.k : `${operator(item)} ${n.n}`)];
  if (n.causes && !twin) {
    const list = element("ul", {}, ...n.causes.map((text) => element("li", { textContent: text })));
    parts.push(element("div", { className: `causes ${n.state}` }, element("strong", { textContent: WORDS[n.state] || "" }), list));
  } else if (n.state) parts.push(element("p", { textContent: WORDS[n.state] }));
  parts.push(rows(n.t && !part && row(operator(item) === n.t ? "in ONNX" : "in the file", operator(item) === n.t ? n.k : n.t), n.w && !part && row("location", n.w), n.eo && row("error introduced here", n.eo), n.et && row("total error", n.et)));
  if (n.a) parts.push(element("h3", { textContent: "Attributes" }), rows(...n.a.map(([name, text]) => row(name, text))));
  for (const [title, list, near] of [["Inputs", n.in, item.into], ["Outputs", n.out, item.out]]) {
    if (!list || !list.length) continue;
    parts.push(element("h3", { textContent: title }), rows(...list.filter(([, , , w]) => w < 0).map(([label, name, shape]) => {
      const from = near.find((o) => title === "Inputs" && (o.node.out || []).some((t) => t[1] === name));
      return row(label || "tensor", from ? go(drawing, from, brief(name)) : brief(name), ` ${shape}`);
    })));
  }
  const readers = [...new Set(item.out)];
  if (readers.length) parts.push(element("p", {}, "read by ", ...readers.slice(0, 12).flatMap((o, i) => [i ? ", " : "", go(drawing, o, brief(o.node.n) || o.node.k)]), readers.length > 12 ? ` and ${readers.length - 12} more` : ""));
  const weights = (n.in || []).filter(([, , , w]) => w >= 0);
  if (weights.length) parts.push(element("h3", { textContent: "Weights" }), ...weights.map(([label, , , w]) => weight(label, drawing.model.weights[w])));
  return parts;
}

/* One constant: its numbers, or their range and histogram. */
function weight(label, w) {
  const made = element("div", { className: "weight" }, element("p", {}, element("strong", { textContent: label }), ` ${w.n} `, element("span", { className: "dim", textContent: `${w.d}, ${bytes(w.bytes)}` })));
  if (w.steps) made.append(element("p", { className: "dim", textContent: `then ${w.steps.join("; ")}` }));
  if (w.distinct) made.append(element("p", { className: "dim", textContent: `${w.distinct} distinct values` }));
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

/* What is shown before anything is chosen: the differences, then what is known of the models. */
function overview() {
  const hint = element("p", { className: "dim" }, "Select a layer to see its attributes and weights; ", element("kbd", { textContent: "?" }), " lists the keys.");
  const found = list.slice(0, LISTED).map(({ d, item }) => element("li", {}, go(d, item, `${operator(item)} ${item.node.n}`), ` ${WORDS[item.node.state]}`, ...(item.node.causes || []).slice(0, 1).map((text) => element("div", { className: "dim", textContent: text }))));
  if (list.length > LISTED) found.push(element("li", { className: "dim", textContent: `and ${list.length - LISTED} more` }));
  const differing = two ? [element("h2", { textContent: verdict() }), element("ol", { className: "found" }, ...found)] : [];
  aside.replaceChildren(...differing, hint, ...data.models.flatMap(({ about }) => [
    named("h2", about.name),
    rows(
      ...about.facts.map(([name, text]) => row(name, text)),
      ...["inputs", "outputs"].flatMap((side) => about[side].slice(0, 12).map((t) => row(side.slice(0, -1), `${t.name} ${t.type}[${t.shape === null ? "?" : t.shape.map((d) => d ?? "?").join(",")}]`))),
      row("weights", `${number(about.weights.elements)} in ${bytes(about.weights.bytes)}`),
      row("operators", Object.entries(Object.keys(about.layers).length ? about.layers : about.operators).sort((a, b) => b[1] - a[1]).map(([k, n]) => `${n} ${k}`).join(", ")),
    ),
  ]));
}

const some = (n, one, many) => (n ? [`${n} ${n === 1 ? one : many}`] : []);

const changed = () => drawings[0].nodes.filter((i) => i.node.state === "changed").length; // but for what is wrong

/* What differs, in a sentence. */
function verdict() {
  const c = { ...data.counts, changed: changed() }, e = data.errors;
  const found = [...(e ? some(e.wrong, "layer is wrong", "layers are wrong") : []), ...some(c.changed, "layer differs in structure", "layers differ in structure"), ...some(c["only in the first"], "layer is only in the first model", "layers are only in the first model"), ...some(c["only in the second"], "layer is only in the second model", "layers are only in the second model")];
  return found.join(", ") || (e && !data.passed ? "The outputs differ, but no single layer is wrong" : "No layer differs");
}

/* ---- legend, differences */

/* Families, or what a comparison found. What does not occur is left out. */
function legend() {
  const list = document.querySelector(".legend"), entry = (kind, text) => list.append(element("li", {}, element("i", { className: kind }), text));
  const counted = (n, kind, text) => { if (n) entry(kind, `${n} ${text}`); };
  const c = data.counts, e = data.errors;
  if (two) {
    if (e) {
      counted(e.wrong, "wrong", "wrong ✕");
      counted(e.inherited, "inherited", "pass an error on ↓");
      counted(e.noise, "noise", "within rounding noise");
      counted(e.equal, "equal", "identical");
    } else counted(c.same, "", "the same");
    counted(changed(), "changed", "differ in structure ≠");
    counted(c["only in the first"], "only", "only in the first +");
    counted(c["only in the second"], "only", "only in the second +");
    if (e && e.wrong) list.append(element("li", { className: "dim", textContent: "bars: error introduced here to the left, total error to the right" }));
  }
  if (e) return; // colors are those of errors
  const counts = new Map();
  for (const d of drawings) for (const { node } of d.nodes) if (node.f !== undefined) counts.set(node.f, (counts.get(node.f) || 0) + 1);
  for (const [f, n] of [...counts].sort((a, b) => b[1] - a[1])) entry(`family f${f}`, `${data.families[f]} ${n}`);
}

const LISTED = 12;
const list = drawings.flatMap((d) => d.nodes.filter((i) => ["wrong", "changed", "only"].includes(i.node.state) && !(d.index && i.node.state !== "only")).map((item) => ({ d, item })));
list.sort((a, b) => (b.item.node.state === "wrong") - (a.item.node.state === "wrong"));

function differences() {
  const button = document.getElementById("next");
  if (!list.length) return;
  let at = -1;
  button.hidden = false;
  if (location.hash.length < 2) { // the first one is seen at once, on either side
    const { d, item } = list[0], twin = item.node.twin;
    d.reveal(item, { quiet: true });
    if (twin !== undefined) other(d).reveal(other(d).nodes[twin], { quiet: true });
  }
  button.onclick = () => {
    at = (at + 1) % list.length;
    list[at].d.reveal(list[at].item, { focus: false });
    count.textContent = `difference ${at + 1} of ${list.length}`;
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
    const n = item.node, button = element("button", { type: "button", textContent: `${n.port ? n.port : operator(item)} ${n.n}${two ? ` · ${d.model.about.name}` : ""}` });
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

const keys = document.getElementById("keys"), help = document.getElementById("help");
help.onclick = () => keys.showModal();
document.addEventListener("keydown", (e) => {
  if (e.target.closest("input, dialog") || e.ctrlKey || e.metaKey || e.altKey) return;
  const act = { "?": () => help.click(), "/": () => field.focus(), n: () => document.getElementById("next").click() }[e.key];
  if (!act) return;
  e.preventDefault();
  act();
});

legend();
overview();
differences();
if (location.hash.length > 1) {
  const name = decodeURIComponent(location.hash.slice(1)), found = known.find(({ item }) => item.node.n === name);
  if (found) found.d.reveal(found.item);
}
addEventListener("resize", () => drawings.forEach((d) => d._move()));
