"use strict";
/* What a report does beyond being read: filter, sort, copy, fold, hover, draw. */

const all = (selector, within = document) => [...within.querySelectorAll(selector)];

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/* The state of the filter of the cases is part of the address, so that a link shows the same rows:
   #q=WORDS&status=A&status=B&target=C&code=D. Addresses of parts of the page have no "=". */
const asked = () => new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");

function remember(query) {
  try {
    history.replaceState(null, "", query.size ? `#${query}` : location.pathname + location.search);
  } catch { /* a page inside of another one has no address of its own */ }
}

/* A search field, one button for each status, and choices above a table. What is filtered has
   data-s: rows, or the cells of a matrix. */
function filter(table) {
  const what = table.dataset.filter, kept = what === "cases";
  const rows = [...table.tBodies[0].rows].map((row) => ({ row, items: row.dataset.s ? [row] : all("[data-s]", row) }));
  const items = rows.flatMap(({ row, items }) => items.map((item) => ({ item, data: item.dataset, text: [row.dataset.s ? row.textContent : row.cells[0].textContent, item.textContent, item.dataset.t, item.dataset.c, ...all("[title]", item).map((e) => e.title)].join(" ").toLowerCase() })));
  const counted = (key) => items.reduce((found, { data }) => (data[key] ? found.set(data[key], (found.get(data[key]) || 0) + 1) : found), new Map());
  const field = element("input", { type: "search", placeholder: `search ${what}`, ariaLabel: `search ${what}` });
  const said = element("output", { ariaLive: "polite" }), none = element("p", { className: "dim", hidden: true });
  const buttons = ["s", "n"].flatMap((key) => [...counted(key)].sort(([a], [b]) => (a === "ok") - (b === "ok")).map(([value, count]) => {
    const button = element("button", { type: "button", textContent: `${value} ${count}`, ariaPressed: "false" });
    Object.assign(button.dataset, { [key]: value });
    button.onclick = () => { button.ariaPressed = String(button.ariaPressed !== "true"); changed(); };
    return { key, value, button };
  }));
  const choices = [["t", "target"], ["c", "code"]].filter(([key]) => kept && counted(key).size > 1).map(([key, title]) => {
    const select = element("select", { ariaLabel: title }, new Option(`every ${title}`, ""), ...[...counted(key)].sort().map(([value, count]) => new Option(`${value} (${count})`, value)));
    select.onchange = () => changed();
    return { key, title, select };
  });
  const pressed = (key) => buttons.filter((b) => b.key === key && b.button.ariaPressed === "true").map((b) => b.value);
  const apply = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean), status = pressed("s"), since = pressed("n");
    let left = 0;
    const seen = new Set();
    for (const { item, data, text } of items) {
      const fits = (!status.length || status.includes(data.s)) && (!since.length || since.includes(data.n)) && choices.every(({ key, select }) => !select.value || data[key] === select.value) && words.every((w) => text.includes(w));
      item.classList.toggle("off", !fits);
      if (fits) { left += 1; seen.add(data.i); }
    }
    for (const { row, items } of rows) row.hidden = items.every((i) => i.classList.contains("off"));
    if (kept) for (const part of all("details.case")) part.hidden = !seen.has(part.dataset.i);
    said.textContent = left < items.length ? `${left} of ${items.length}` : `${items.length} ${what}`;
    none.hidden = left > 0;
    table.hidden = left === 0;
    none.textContent = field.value ? `no ${what} match "${field.value}"` : `no ${what} of this kind`;
  };
  const changed = () => {
    apply();
    if (!kept) return;
    const query = new URLSearchParams();
    if (field.value) query.set("q", field.value);
    for (const status of pressed("s")) query.append("status", status);
    for (const since of pressed("n")) query.append("since", since);
    for (const { title, select } of choices) if (select.value) query.set(title, select.value);
    remember(query);
  };
  const restore = () => {
    const query = asked();
    field.value = query.get("q") || "";
    for (const { key, value, button } of buttons) button.ariaPressed = String(query.getAll(key === "s" ? "status" : "since").includes(value));
    for (const { title, select } of choices) select.value = [...select.options].some((o) => o.value === query.get(title)) ? query.get(title) : "";
    apply();
  };
  field.oninput = changed;
  field.onkeydown = (e) => { if (e.key === "Escape") { field.value = ""; changed(); } };
  const around = table.closest("details.case"), of = around ? ` of ${around.querySelector("summary").textContent.trim()}` : "";
  const shown = buttons.filter(({ key }) => counted(key).size > (key === "s" ? 1 : 0)).map(({ button }) => button);
  const bar = element("div", { className: "tools filter", role: "search", ariaLabel: `filter ${what}${of}` }, field, ...shown, ...choices.map(({ select }) => select), said);
  table.closest(".wide").before(bar);
  table.closest(".wide").after(none);
  if (kept) {
    restore();
    addEventListener("hashchange", () => { if (!location.hash || asked().size) { restore(); if (asked().size) bar.scrollIntoView(); } });
  } else apply();
}

/* What is wider than the screen is scrolled by the keyboard, too. */
function reachable(part) {
  const wider = part.scrollWidth > part.clientWidth, table = part.querySelector("table");
  for (const name of ["tabindex", "role", "aria-label"]) part.removeAttribute(name);
  if (!wider) return;
  part.tabIndex = 0;
  part.role = "group";
  part.ariaLabel = table.getAttribute("aria-label") || `table: ${[...table.rows[0].cells].map((c) => c.textContent).filter(Boolean).join(", ")}`;
}

/* Headers that sort: by data-v where a cell has one, numbers as numbers. */
function sortable(table) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const value = (row, i) => { const c = row.cells[i]; return c ? (c.dataset.v !== undefined ? Number(c.dataset.v) : c.textContent.trim()) : ""; };
  heads.forEach((th, i) => {
    if (!th.textContent) return;
    const button = element("button", { type: "button", className: "sort", textContent: th.textContent });
    th.replaceChildren(button);
    button.onclick = () => {
      const down = th.getAttribute("aria-sort") === "ascending";
      heads.forEach((o) => o.removeAttribute("aria-sort"));
      th.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].map((r) => [value(r, i), r]);
      rows.sort(([a], [b]) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true })));
      if (down) rows.reverse();
      body.append(...rows.map(([, r]) => r));
    };
  });
}

/* The button beside a command. */
function copyable(button) {
  const code = button.previousElementSibling, label = button.textContent;
  button.hidden = false;
  button.onclick = async () => {
    try { await navigator.clipboard.writeText(code.textContent); } catch {
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    button.textContent = "copied";
    setTimeout(() => { button.textContent = label; }, 1500);
  };
}

/* The error along the graph: what is under the pointer, or under the arrow keys. */
function curve(figure) {
  const plot = figure.querySelector(".plot"), points = JSON.parse(figure.querySelector("script").textContent);
  const cursor = element("div", { className: "cursor", hidden: true }), tip = element("div", { className: "tip", hidden: true });
  const said = element("p", { className: "picked dim", ariaLive: "polite" });
  plot.append(cursor, tip);
  figure.append(said);
  plot.tabIndex = 0;
  let at = Math.max(0, points.findIndex((p) => p[2] === "wrong"));
  const show = (i, aloud) => {
    at = Math.max(0, Math.min(points.length - 1, i));
    const [layer, kind, status, own, total, limit] = points[at], share = points.length > 1 ? at / (points.length - 1) : 0;
    const text = `${layer} (${kind}): ${status}\nerror introduced here ${own}, total ${total}, allowed ${limit}`;
    cursor.hidden = tip.hidden = false;
    cursor.style.left = `${share * 100}%`;
    tip.textContent = text;
    tip.style.left = Math.max(0, Math.min(share * plot.clientWidth + 10, plot.clientWidth - tip.offsetWidth)) + "px";
    tip.style.top = "8px";
    if (aloud) said.textContent = text.replace("\n", "; ");
  };
  const hide = () => { cursor.hidden = tip.hidden = true; };
  plot.onpointermove = plot.onpointerdown = (e) => {
    const r = plot.getBoundingClientRect();
    show(Math.round(((e.clientX - r.left) / r.width) * (points.length - 1)));
  };
  plot.onpointerleave = hide;
  plot.onfocus = () => show(at, true);
  plot.onblur = hide;
  plot.onkeydown = (e) => {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, PageDown: at + 10, PageUp: at - 10, Home: 0, End: points.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    show(to, true);
  };
}

/* The graph around the first wrong layer. */
function picture(figure) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const host = figure.querySelector(".graph"), said = figure.querySelector(".picked");
  host.hidden = false;
  const describe = ({ node }) => ({
    label: node.kind, sub: node.layer, mark: { wrong: "✕", inherited: "↓" }[node.state] || "", own: node.own, from: node.from, title: node.title,
  });
  const draw = () => {
    const made = new Drawing(host, data, { describe, wheel: "ctrl", across: host.clientWidth > 700, onChoose: (item) => { said.textContent = item.node.title.replaceAll("\n", ", "); } });
    if (made.options.across) host.style.height = `${Math.max(150, Math.min(400, made.root.height + 60))}px`;
    const wrong = made.nodes.find((n) => n.node.state === "wrong");
    if (wrong) { made.centre(wrong); made.choose(wrong, { quiet: true }); }
  };
  if (host.clientWidth) draw();
  else figure.closest("details").addEventListener("toggle", draw, { once: true }); // a folded case has no size yet
}

all("table[data-filter]").forEach(filter);
all("table.sortable").forEach(sortable);
all("button.copy").forEach(copyable);
all("figure.curve").forEach(curve);
all("figure.picture").forEach(picture);
all("[data-fold]").forEach((button) => {
  button.hidden = false;
  button.onclick = () => all("details.case").forEach((d) => { d.open = button.dataset.fold === "open"; });
});
const target = () => {
  const found = location.hash.length > 1 && !location.hash.includes("=") && document.getElementById(location.hash.slice(1)), around = found && found.closest("details");
  if (around) { around.open = true; around.scrollIntoView(); }
};
const reach = () => all(".wide").forEach(reachable);
addEventListener("resize", reach);
addEventListener("toggle", reach, true); // of what was folded
reach();
addEventListener("hashchange", target);
target();
