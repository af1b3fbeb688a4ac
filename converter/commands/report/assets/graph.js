"use strict";
/* A drawing of layers that can be moved, zoomed, folded and walked through with the keyboard.

   `model` has nodes [{scope}], edges [[source, target, text]] between places in nodes, and scopes
   [{name, parent}], where -1 is the drawing itself. Each scope is laid out by dagre as a graph of
   its own, with what is open in it as one large box; so thousands of layers cost nothing until
   they are unfolded, and folding one scope lays out no other but those around it. Of many boxes,
   only those that are on the screen, and large enough to be seen, are in the document. */

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = 14, HEAD = 26, LONGEST = 34, FEW = 8; // pixels; characters of a name in a box; boxes that are too few to be the first sight
const LEAST = 5, READABLE = 0.5, AROUND = 150, MANY = 200; // pixels: boxes that are lower are not drawn; the scale from which edges have texts; pixels around the screen that are drawn; boxes that are not all drawn
const LARGEST = 8192; // pixels of a side of an exported picture
const RANK = ["", "equal", "noise", "inherited", "changed", "only", "wrong"]; // what a folded scope shows of its layers: the last
const pen = document.createElement("canvas").getContext("2d"), widths = new Map();
let family = "";

function put(parent, tag, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text) made.textContent = text;
  parent.append(made);
  return made;
}

function shorten(text, longest = LONGEST) {
  if (text.length <= longest) return text;
  const end = Math.floor(longest / 2);
  return text.slice(0, longest - end - 1) + "…" + text.slice(-end);
}

function smooth(points) {
  const at = (p) => `${p.x.toFixed(1)} ${p.y.toFixed(1)}`;
  let path = "M" + at(points[0]);
  for (let i = 1; i < points.length - 1; i++) {
    const p = points[i], q = points[i + 1];
    path += `Q${at(p)} ${i === points.length - 2 ? at(q) : at({ x: (p.x + q.x) / 2, y: (p.y + q.y) / 2 })}`;
  }
  return points.length === 2 ? path + "L" + at(points[1]) : path;
}

/* The shape of a tensor in the text of an edge: "name int8[1,16,8,8], scale 1" -> int8 1×16×8×8. */
function shapeIn(text) {
  const found = /(\w*)\[([^[\]]*)\](?:, scale .*)?$/.exec(text || "");
  if (!found || found[2] === "?") return "";
  const kind = found[1] === "float" ? "" : `${found[1]} `;
  return `${kind}${found[2].replaceAll(",", "×") || "scalar"}`.trim();
}

/* Pixels of a text. */
function widthOf(text, size) {
  const key = `${size} ${text}`;
  if (!widths.has(key)) {
    family = family || getComputedStyle(document.body).fontFamily;
    pen.font = `${size}px ${family}`;
    widths.set(key, pen.measureText(text).width);
  }
  return widths.get(key);
}

/* Colors as old viewers of pictures know them. */
function plainColor(text) {
  const found = /^color\(srgb ([\d.]+) ([\d.]+) ([\d.]+)/.exec(text);
  return found ? `rgb(${found.slice(1).map((v) => Math.round(v * 255)).join(",")})` : text;
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

class Drawing {
  /* options: describe(item) -> {label, sub, family, mark, own, from, title} (own and from between
     0 and 1), name: of exported pictures, onChoose(item), wheel ("always", or "ctrl" where a page scrolls), open: how many boxes
     are unfolded at first, across: whether tensors flow to the right (only without scopes). */
  constructor(host, model, options) {
    this.host = host;
    this.options = options;
    this.scale = 1;
    this.at = { x: 0, y: 0 };
    this.chosen = null;
    this.known = new Map(); // layouts
    this._items(model);
    this._edges(model.edges);
    this._open(options.open || 90);
    this._frame();
    this._listen();
    this.draw();
    this.fit();
  }

  /* ---- what there is */

  _items(model) {
    this.root = { drawing: this, id: "root", children: [], open: true, depth: 0, links: new Map() };
    this.scopes = model.scopes.map((data, i) => ({ id: `s${i}`, scope: data, children: [], open: false, links: new Map() }));
    this.nodes = model.nodes.map((data, i) => ({ id: `n${i}`, node: data, place: i, into: [], out: [] }));
    const under = (place) => (place < 0 || place === undefined ? this.root : this.scopes[place]);
    const enter = (item, parent) => { item.parent = parent; parent.children.push(item); };
    this.nodes.forEach((item) => enter(item, under(item.node.scope)));
    this.scopes.forEach((item) => enter(item, under(item.scope.parent)));
    const deepen = (item, depth) => {
      item.depth = depth;
      item.count = item.node ? 1 : 0;
      for (const child of item.children || []) { deepen(child, depth + 1); item.count += child.count; }
    };
    deepen(this.root, 0);
    this.byId = new Map([...this.nodes, ...this.scopes].map((item) => [item.id, item]));
  }

  _edges(edges) {
    for (const [source, target, text] of edges) {
      const a = this.nodes[source], b = this.nodes[target];
      a.out.push(b);
      b.into.push(a);
      let x = a, y = b;
      while (x.parent !== y.parent) { if (x.depth > y.depth) x = x.parent; else if (y.depth > x.depth) y = y.parent; else { x = x.parent; y = y.parent; } }
      if (x === y) continue;
      const links = x.parent.links, key = `${x.id} ${y.id}`;
      if (!links.has(key)) links.set(key, { x, y, ends: [] });
      links.get(key).ends.push([a, b, text]);
    }
  }

  /* Unfolds level by level while there is room, scopes of one size together. */
  _open(most) {
    let visible = this.root.children.length, waiting = this.root.children;
    while (waiting.length) {
      const sizes = new Map(), next = [];
      for (const scope of waiting) if (scope.scope && !scope.scope.closed) sizes.set(scope.children.length, [...(sizes.get(scope.children.length) || []), scope]);
      for (const [size, scopes] of [...sizes].sort(([p], [q]) => p - q)) {
        const room = visible < FEW ? scopes.filter((_, i) => visible + (i + 1) * (size - 1) <= most) : scopes;
        if (visible + room.length * (size - 1) > most) continue;
        visible += room.length * (size - 1);
        for (const scope of room) { scope.open = true; next.push(...scope.children); }
      }
      waiting = next;
    }
  }

  /* The worst state of anything below, what a folded box shows. */
  state(item) {
    if (item.node) return item.node.state || "";
    if (item.worst === undefined)
      item.worst = RANK[Math.max(0, ...item.children.map((c) => RANK.indexOf(this.state(c))))];
    return item.worst;
  }

  /* The box that stands for a layer: itself, or the outermost folded scope around it. */
  shown(item) {
    let found = item;
    for (let p = item.parent; p; p = p.parent) if (!p.open) found = p;
    return found;
  }

  /* ---- where it is */

  _size(item) {
    const told = this.options.describe(item);
    item.told = told;
    if (item.scope && item.open) return;
    const wide = Math.max(widthOf(shorten(told.label), 12) + (item.scope ? 12 : 0), widthOf(shorten(told.sub || ""), 11));
    item.width = Math.round(Math.max(64, wide + (told.mark ? 42 : 26)));
    item.height = told.sub ? 42 : 28;
  }

  _layout(item) {
    if (item !== this.root) this._size(item);
    if (item.node || !item.open || item.settled) return;
    for (const child of item.children) this._layout(child);
    const size = this._arranged(item);
    const head = item === this.root ? 0 : HEAD;
    const label = item.told ? widthOf(shorten(item.told.label), 12) + 50 : 0;
    item.width = Math.max(size.width || 40, label);
    item.inset = { x: (item.width - (size.width || 40)) / 2, y: head };
    item.height = (size.height || 40) + head;
    item.settled = true;
  }

  /* Places of what is in a scope. Blocks that are built alike, as networks repeat them, are laid
     out once. */
  _arranged(item) {
    const place = new Map(item.children.map((child, i) => [child, i])), links = [...item.links.values()];
    for (const link of links) {
      const texts = new Set(link.ends.map((end) => shapeIn(end[2])));
      link.text = texts.size === 1 ? [...texts][0] : "";
    }
    const sizes = item.children.map((c) => [c.width, c.height]), pairs = links.map(({ x, y, text }) => [place.get(x), place.get(y), text && Math.ceil(widthOf(text, 11))]);
    const key = JSON.stringify([sizes, pairs]);
    if (!this.known.has(key)) {
      const g = new dagre.graphlib.Graph();
      g.setGraph({ rankdir: this.options.across ? "LR" : "TB", nodesep: 22, ranksep: 26, edgesep: 12, marginx: MARGIN, marginy: MARGIN });
      sizes.forEach(([width, height], i) => g.setNode(String(i), { width, height }));
      for (const [x, y, width] of pairs) g.setEdge(String(x), String(y), width ? { width, height: 14, labelpos: "r", labeloffset: 6 } : {});
      dagre.layout(g);
      this.known.set(key, { size: g.graph(), boxes: sizes.map((_, i) => g.node(String(i))), edges: pairs.map(([x, y]) => g.edge(String(x), String(y))) });
    }
    const { size, boxes, edges } = this.known.get(key);
    item.children.forEach((child, i) => { child.x = boxes[i].x - child.width / 2; child.y = boxes[i].y - child.height / 2; });
    links.forEach((link, i) => { link.points = edges[i].points; link.spot = edges[i]; });
    return size;
  }

  /* ---- what is drawn */

  _frame() {
    this.host.classList.add("graph");
    this.svg = put(this.host, "svg", { role: "group", "aria-label": this.host.getAttribute("aria-label") || "graph" });
    const defs = put(this.svg, "defs");
    const arrow = put(defs, "marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" });
    put(arrow, "path", { d: "M0 0L8 4L0 8z", style: "fill:var(--dim)" });
    this.stage = put(this.svg, "g");
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    const zoom = document.createElement("div");
    zoom.className = "zoom";
    const buttons = [["+", "zoom in", () => this.zoom(1.3)], ["−", "zoom out", () => this.zoom(1 / 1.3)], ["fit", "fit everything", () => this.fit(true)]];
    if (this.options.name) buttons.push(["SVG", "save as SVG", () => this.saveSvg()], ["PNG", "save as PNG", () => this.savePng()]);
    for (const [text, label, act] of buttons) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.setAttribute("aria-label", label);
      button.onclick = act;
      zoom.append(button);
    }
    this.host.append(this.tip, zoom);
  }

  draw() {
    this._layout(this.root);
    this.stage.textContent = "";
    this.placed = [];
    this.lines = [];
    this.boxes = new Map(); // what is in the document
    [this.below, this.between, this.above] = [1, 2, 3].map(() => put(this.stage, "g"));
    this._place(this.root, 0, 0);
    this._lines(this.root, new Set());
    this.paint();
  }

  _place(item, x, y) {
    item.left = x;
    item.top = y;
    if (item !== this.root) this.placed.push(item);
    if (item.node || !item.open) return;
    for (const child of item.children) this._place(child, x + item.inset.x + child.x, y + item.inset.y + child.y);
  }

  /* Puts what is on the screen into the document, and takes out what is not. */
  paint() {
    const everything = this.whole || this.placed.length < MANY;
    const gap = AROUND / this.scale, least = everything ? 0 : LEAST / this.scale, chosen = this.chosen && this.shown(this.chosen);
    const left = -this.at.x / this.scale - gap, top = -this.at.y / this.scale - gap;
    const right = left + this.svg.clientWidth / this.scale + 2 * gap, bottom = top + this.svg.clientHeight / this.scale + 2 * gap;
    const near = (x0, y0, x1, y1) => everything || (x1 > left && x0 < right && y1 > top && y0 < bottom);
    let changed = false;
    for (const item of this.placed) {
      const seen = item === chosen || (item.height >= least && near(item.left, item.top, item.left + item.width, item.top + item.height));
      const box = this.boxes.get(item.id);
      if (seen === Boolean(box)) continue;
      changed = true;
      if (seen) this._box(item, item.scope && item.open ? this.below : this.above);
      else { box.remove(); this.boxes.delete(item.id); }
    }
    for (const line of this.lines) {
      const seen = Math.min(line.source.height, line.target.height) >= least && near(...line.around);
      if (seen === Boolean(line.drawn)) continue;
      changed = true;
      if (seen) this._line(line);
      else { line.drawn.remove(); line.drawn = null; }
    }
    this.svg.classList.toggle("far", this.scale < READABLE && !this.whole);
    if (changed) this._mark();
  }

  _box(item, layer) {
    const told = item.told, open = item.scope && item.open;
    const state = open ? "" : this.state(item);
    const box = put(layer, "g", {
      class: `box ${state} ${item.scope ? "scope" : ""} ${open ? "open" : ""} ${told.port ? "port" : ""} ${told.family !== undefined && !open ? `family f${told.family}` : ""}`,
      transform: `translate(${item.left.toFixed(1)} ${item.top.toFixed(1)})`, "data-id": item.id,
      tabindex: -1, role: "button", "aria-label": this._aloud(told),
    });
    if (item.scope) box.setAttribute("aria-expanded", String(item.open));
    put(box, "rect", { width: item.width, height: item.height });
    for (const [kind, x] of [["own", 3], ["from", item.width - 3]])
      if (!open && told[kind]) put(box, "line", { class: kind, x1: x, x2: x, y1: item.height - 2, y2: item.height - 2 - (item.height - 4) * told[kind] });
    const sign = item.scope ? (item.open ? "▾ " : "▸ ") : "";
    put(box, "text", { "aria-hidden": true, x: 12, y: 18 }, sign + shorten(told.label));
    if (told.sub && !open) put(box, "text", { "aria-hidden": true, class: "sub", x: 12, y: 33 }, shorten(told.sub));
    if (told.mark && !open) put(box, "text", { "aria-hidden": true, class: "mark", x: item.width - 9, y: 18 }, told.mark);
    for (const text of box.querySelectorAll("text")) text.before(" "); // words for who hears them
    this.boxes.set(item.id, box);
  }

  /* What is written in a box, then the rest. */
  _aloud(told) {
    const rest = told.title.split("\n").filter((line) => line !== told.label && line !== told.sub);
    return [`${told.label} ${told.sub || ""}`.trim(), ...rest].join(", ");
  }

  _lines(item, seen) {
    for (const link of item.links.values()) {
      const shift = (p) => ({ x: p.x + item.left + item.inset.x, y: p.y + item.top + item.inset.y });
      const middle = link.points.map(shift);
      for (const [a, b, text] of link.ends) {
        const source = this.shown(a), target = this.shown(b), key = `${source.id} ${target.id}`;
        if (seen.has(key)) continue;
        seen.add(key);
        const points = [...middle];
        if (source !== link.x) points.unshift({ x: source.left + source.width / 2, y: source.top + source.height });
        if (target !== link.y) points.push({ x: target.left + target.width / 2, y: target.top });
        const xs = points.map((p) => p.x), ys = points.map((p) => p.y);
        const around = [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
        const label = link.labelled === this.placed ? "" : link.text; // once, whatever the number of lines
        link.labelled = this.placed;
        this.lines.push({ source, target, from: source.id, to: target.id, points, around, text: text || "", label, spot: label && shift(link.spot) });
      }
    }
    for (const child of item.children) if (child.scope && child.open) this._lines(child, seen);
  }

  _line(line) {
    line.drawn = put(this.between, "g", { class: "edge" });
    const path = put(line.drawn, "path", { d: smooth(line.points), "marker-end": "url(#arrow)" });
    put(path, "title", {}, line.text);
    if (line.label) put(line.drawn, "text", { x: line.spot.x.toFixed(1), y: (line.spot.y + 4).toFixed(1), "aria-hidden": true }, line.label);
  }

  _mark(hovered) {
    const id = this.chosen && this.shown(this.chosen).id, other = hovered && hovered.id;
    for (const [key, box] of this.boxes) {
      box.classList.toggle("chosen", key === id);
      box.setAttribute("tabindex", key === (id || this.boxes.keys().next().value) ? 0 : -1);
    }
    for (const { drawn, from, to } of this.lines) if (drawn) drawn.classList.toggle("lit", (id && (from === id || to === id)) || (other && (from === other || to === other)) || false);
  }

  /* ---- moving */

  _move() {
    this.stage.setAttribute("transform", `translate(${this.at.x.toFixed(1)} ${this.at.y.toFixed(1)}) scale(${this.scale.toFixed(4)})`);
    this.paint();
  }

  zoom(factor, x = this.svg.clientWidth / 2, y = this.svg.clientHeight / 2) {
    const scale = Math.max(0.03, Math.min(4, this.scale * factor)), by = scale / this.scale;
    this.at = { x: x - (x - this.at.x) * by, y: y - (y - this.at.y) * by };
    this.scale = scale;
    this._move();
  }

  /* Everything; or as wide as the screen, from the top, but never too small to read. */
  fit(all = false) {
    const width = this.svg.clientWidth || 600, height = this.svg.clientHeight || 400;
    const whole = Math.min(width / this.root.width, height / this.root.height, 1.4);
    this.scale = all ? whole : Math.max(whole, Math.min(width / this.root.width, 1.2), 1);
    const fits = this.root.width * this.scale <= width, first = this.root.children.find((c) => c.node && c.node.port) || this.root.children[0];
    const middle = fits || all || !first ? this.root.width / 2 : first.left + first.width / 2;
    const top = Math.max(all ? 0 : 40, (height - this.root.height * this.scale) / 2); // below the buttons
    this.at = { x: width / 2 - middle * this.scale, y: top };
    this._move();
  }

  centre(item, at = 0.5) {
    const box = this.shown(item);
    if (this.scale < 1) this.scale = 1;
    this.at = {
      x: this.svg.clientWidth / 2 - (box.left + box.width / 2) * this.scale,
      y: this.svg.clientHeight * at - (box.top + Math.min(box.height, 60) / 2) * this.scale,
    };
    this._move();
  }

  /* ---- choosing and folding */

  choose(item, { centre = false, quiet = false, focus = false } = {}) {
    this.chosen = item;
    this.paint();
    this._mark();
    if (centre) this.centre(item);
    if (focus) { const box = this.boxes.get(this.shown(item).id); if (box) box.focus({ preventScroll: true }); }
    if (!quiet && this.options.onChoose) this.options.onChoose(item);
  }

  /* Unfolds what is around a layer and goes there. */
  reveal(item, options = {}) {
    let changed = false;
    for (let p = item.parent; p && p !== this.root; p = p.parent) if (!p.open) { p.open = true; changed = true; }
    if (changed) { for (let p = item.parent; p; p = p.parent) p.settled = false; this.draw(); }
    this.choose(item, { centre: true, ...options });
  }

  toggle(scope) {
    const before = { x: scope.left, y: scope.top };
    scope.open = !scope.open;
    for (let p = scope; p; p = p.parent) p.settled = false;
    this.draw();
    this.at.x += (before.x - scope.left) * this.scale; // what was clicked stays under the pointer
    this.at.y += (before.y - scope.top) * this.scale;
    this._move();
  }

  foldAll(open) {
    for (const scope of this.scopes) { scope.open = open; scope.settled = false; }
    this.root.settled = false;
    this.draw();
    this.fit();
  }

  /* ---- pictures */

  /* The whole drawing as text in SVG, with the colors of the page. */
  picture() {
    this.whole = true;
    this.paint();
    const kept = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "font-weight", "text-anchor", "rx"];
    const copy = this.stage.cloneNode(true), originals = this.stage.querySelectorAll("*");
    copy.removeAttribute("transform");
    copy.querySelectorAll("*").forEach((made, i) => {
      const style = getComputedStyle(originals[i]);
      for (const name of [...made.getAttributeNames()]) if (["class", "tabindex", "role", "data-id"].includes(name) || name.startsWith("aria-")) made.removeAttribute(name);
      if (["rect", "path", "text", "line"].includes(made.tagName)) for (const name of kept) made.setAttribute(name, plainColor(style.getPropertyValue(name)));
    });
    this.whole = false;
    this.paint();
    const colors = getComputedStyle(document.body), { width, height } = this.root;
    const svg = document.createElementNS(SVG, "svg");
    for (const [name, value] of Object.entries({ xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}` })) svg.setAttribute(name, value);
    const defs = this.svg.querySelector("defs").cloneNode(true);
    defs.querySelector("path").setAttribute("style", `fill:${colors.getPropertyValue("--dim").trim()}`);
    svg.append(defs);
    put(svg, "rect", { width, height, fill: colors.backgroundColor });
    svg.append(copy);
    return new XMLSerializer().serializeToString(svg);
  }

  saveSvg() { save(new Blob([this.picture()], { type: "image/svg+xml" }), `${this.options.name}.svg`); }

  async savePng() {
    const image = new Image(), { width, height } = this.root, scale = Math.min(2, LARGEST / Math.max(width, height));
    image.src = URL.createObjectURL(new Blob([this.picture()], { type: "image/svg+xml" }));
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: Math.ceil(width * scale), height: Math.ceil(height * scale) });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(image.src);
    canvas.toBlob((blob) => save(blob, `${this.options.name}.png`));
  }

  /* ---- listening */

  _listen() {
    const held = new Map();
    let moved = 0;
    const place = (e) => { const r = this.svg.getBoundingClientRect(); return { x: e.clientX - r.left, y: e.clientY - r.top }; };
    const under = (e) => { const box = e.target.closest && e.target.closest(".box"); return box ? this.byId.get(box.dataset.id) : null; };
    this.svg.addEventListener("pointerdown", (e) => { if (e.button === 0) { held.set(e.pointerId, place(e)); moved = 0; } });
    this.svg.addEventListener("pointermove", (e) => {
      const was = held.get(e.pointerId), now = place(e);
      if (!was) return this._hover(under(e), now);
      if (held.size === 1) { this.at.x += now.x - was.x; this.at.y += now.y - was.y; this._move(); } else {
        const other = [...held].find(([id]) => id !== e.pointerId)[1];
        const length = (p) => Math.hypot(p.x - other.x, p.y - other.y) || 1;
        this.zoom(length(now) / length(was), (now.x + other.x) / 2, (now.y + other.y) / 2);
      }
      moved += Math.abs(now.x - was.x) + Math.abs(now.y - was.y);
      if (moved > 4 && !this.svg.hasPointerCapture(e.pointerId)) this.svg.setPointerCapture(e.pointerId);
      held.set(e.pointerId, now);
    });
    for (const end of ["pointerup", "pointercancel"]) this.svg.addEventListener(end, (e) => held.delete(e.pointerId));
    this.svg.addEventListener("pointerleave", () => this._hover(null));
    this.svg.addEventListener("click", (e) => {
      const item = under(e);
      if (moved > 4 || !item) return;
      const header = !item.open || place(e).y < this.at.y + (item.top + HEAD) * this.scale;
      if (item.scope && header) this.toggle(item);
      if (header) this.choose(item, { focus: true });
    });
    this.svg.addEventListener("wheel", (e) => {
      if (this.options.wheel === "ctrl" && !e.ctrlKey) return;
      e.preventDefault();
      const p = place(e);
      this.zoom(Math.exp(-e.deltaY * 0.0015), p.x, p.y);
    }, { passive: false });
    this.svg.addEventListener("keydown", (e) => this._key(e));
    this.svg.addEventListener("focusin", (e) => this._hover(under(e), null));
    this.svg.addEventListener("focusout", () => this._hover(null));
  }

  _hover(item, at) {
    this._mark(item);
    this.tip.hidden = !item;
    if (!item) return;
    this.tip.textContent = item.told.title;
    const spot = at || { x: item.left * this.scale + this.at.x, y: (item.top + Math.min(item.height, 60)) * this.scale + this.at.y };
    this.tip.style.left = Math.max(4, Math.min(spot.x + 12, this.host.clientWidth - this.tip.offsetWidth - 6)) + "px";
    this.tip.style.top = Math.max(4, Math.min(spot.y + 14, this.host.clientHeight - this.tip.offsetHeight - 6)) + "px";
  }

  /* Up and down follow the tensors, left and right go through layers side by side. */
  _key(e) {
    const box = e.target.closest(".box"), item = box && this.byId.get(box.dataset.id);
    if (e.key === "+" || e.key === "=") this.zoom(1.3);
    else if (e.key === "-") this.zoom(1 / 1.3);
    else if (e.key === "0") this.fit(true);
    else if (!item) return;
    else if (e.key === "Enter" || e.key === " ") { if (item.scope) this.toggle(item); this.choose(item, { focus: true }); }
    else if (e.key.startsWith("Arrow")) {
      const next = this._beside(item, e.key);
      if (next) this.choose(next, { centre: true, focus: true });
    } else return;
    e.preventDefault();
  }

  _beside(item, key) {
    const near = (id) => this.byId.get(id), across = this.options.across;
    if (across) key = { ArrowRight: "ArrowDown", ArrowLeft: "ArrowUp", ArrowDown: "ArrowRight", ArrowUp: "ArrowLeft" }[key];
    if (key === "ArrowDown") { const l = this.lines.find((l) => l.from === item.id); return l ? near(l.to) : this._inner(item); }
    if (key === "ArrowUp") { const l = this.lines.find((l) => l.to === item.id); return l ? near(l.from) : null; }
    const along = (o) => (across ? o.left + o.width / 2 : o.top + Math.min(o.height, 60) / 2), aside = (o) => (across ? o.top : o.left);
    const later = (o) => (key === "ArrowRight" ? aside(o) > aside(item) : aside(o) < aside(item));
    const row = this.placed.filter((o) => o.parent === item.parent && o !== item && Math.abs(along(o) - along(item)) < 60 && later(o));
    row.sort((p, q) => Math.abs(aside(p) - aside(item)) - Math.abs(aside(q) - aside(item)));
    return row[0] || null;
  }

  _inner(item) { return item.scope && item.open ? item.children[0] || null : null; }
}
