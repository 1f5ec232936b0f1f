"use strict";
{
// What is drawn over the two images: a layer of lines, and the candidates of one keypoint.
const data = JSON.parse(document.getElementById("data").textContent);
const stage = document.getElementById("stage");
const bulk = document.getElementById("bulk");
const overlay = document.getElementById("overlay");
const detail = document.getElementById("detail");
const step = document.getElementById("step");
const panels = [0, 1].map((k) => document.getElementById("panel" + k));
const SVG = "http://www.w3.org/2000/svg";
const CHOSEN = 2;
const RANK_COLOURS = ["#4fc3ff", "#8b98ff", "#c58bff", "#ff7ec4", "#ffa14f"];
const CHOSEN_COLOUR = "#34e0ab", OTHER_COLOUR = "#ffb14a";
const REACH_PX = { mouse: 22, touch: 34 };
const MOST_SHOWN = 12;
const MOST_LINES = 160;

// Edges by keypoint: incident[side][keypoint] is a list of edge numbers, best first.
const incident = [0, 1].map((side) => data.ids[side].map(() => []));
for (let e = 0; e < data.state.length; e++)
  for (const side of [0, 1]) incident[side][data.edges[side][e]].push(e);
const rankOf = (e) => (data.rank ? data.rank[e] : null);
const rankColour = (e) => RANK_COLOURS[Math.min(rankOf(e) || 1, RANK_COLOURS.length) - 1];
const chosenEdge = (side, i) => incident[side][i].find((e) => data.state[e] === CHOSEN);

let boxes = [null, null]; // where the images are within the stage, in CSS pixels
let layer = document.querySelector("input[name=layer]:checked").value;
let current = null; // {side, i}
let held = false;

const make = (name, attributes, parent) => {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (parent) parent.append(node);
  return node;
};
const element = (name, className, text) => {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};
// Pixel centres are at whole numbers, so an image starts half a pixel earlier.
const place = (side, x, y) => {
  const box = boxes[side], size = data.sizes[side];
  return [box.x + ((x + 0.5) / size[0]) * box.w, box.y + ((y + 0.5) / size[1]) * box.h];
};
const at = (side, i) => place(side, data.points[side][2 * i], data.points[side][2 * i + 1]);

function layout() {
  document.body.classList.toggle("stacked", window.matchMedia("(max-width: 719px)").matches);
  const outer = stage.getBoundingClientRect();
  boxes = panels.map((panel) => {
    const r = panel.getBoundingClientRect();
    return { x: r.left - outer.left, y: r.top - outer.top, w: r.width, h: r.height };
  });
  const sharp = Math.min(window.devicePixelRatio || 1, 3);
  bulk.width = Math.max(1, Math.round(outer.width * sharp));
  bulk.height = Math.max(1, Math.round(outer.height * sharp));
  overlay.setAttribute("viewBox", `0 0 ${outer.width} ${outer.height}`);
  overlay.setAttribute("preserveAspectRatio", "none");
  bulk.getContext("2d").setTransform(sharp, 0, 0, sharp, 0, 0);
  drawBulk();
  drawFocus();
}

function drawPairs(context, pairs, colour, alpha, width, dots, every) {
  context.lineWidth = width;
  const count = pairs[0].length;
  for (let k = 0; k < count; k += every) {
    const a = at(0, pairs[0][k]), b = at(1, pairs[1][k]);
    context.globalAlpha = alpha;
    context.strokeStyle = colour(k);
    context.beginPath();
    context.moveTo(a[0], a[1]);
    context.lineTo(b[0], b[1]);
    context.stroke();
  }
  context.globalAlpha = 1;
  context.lineWidth = 1;
  context.strokeStyle = "#0b0f16";
  for (let k = 0; k < count; k++)
    for (const side of [0, 1]) {
      const p = at(side, pairs[side][k]);
      context.fillStyle = colour(k);
      context.beginPath();
      context.arc(p[0], p[1], dots, 0, 7);
      context.fill();
      context.stroke();
    }
}

// Matches are coloured from left to right in image 0, so that an end can be told from others.
const byPlace = (pairs) => {
  const x = pairs[0].map((i) => data.points[0][2 * i]);
  const hues = [];
  [...x.keys()].sort((a, b) => x[a] - x[b]).forEach((k, place) => {
    hues[k] = Math.round(45 + (265 * place) / x.length);
  });
  return (k) => `hsl(${hues[k]} 95% 67%)`;
};

// Dots for all matches, but not more lines than the eye can follow.
const every = (count) => Math.max(1, Math.ceil(count / MOST_LINES));

function drawBulk() {
  const context = bulk.getContext("2d");
  context.clearRect(0, 0, bulk.width, bulk.height);
  if (layer === "none") return;
  const dot = boxes[0].w < 420 ? 1.8 : 2.6;
  if (layer === "candidates") {
    // Later ranks first, so that the best ones lie on top.
    const order = [...data.state.keys()].reverse();
    const pairs = [0, 1].map((side) => order.map((e) => data.edges[side][e]));
    const alpha = Math.max(0.06, Math.min(0.85, 110 / Math.max(order.length, 1)));
    drawPairs(context, pairs, (k) => rankColour(order[k]), alpha, 1, dot * 0.8, 1);
    return;
  }
  const number = layer === "matches" ? 0 : Number(layer.slice("other".length));
  const pairs = data.layers[number].pairs;
  const colour = number === 0 ? byPlace(pairs) : () => OTHER_COLOUR;
  drawPairs(context, pairs, colour, 0.5, 1.2, dot, every(pairs[0].length));
}

function drawFocus() {
  overlay.replaceChildren();
  stage.classList.toggle("focused", current !== null);
  if (!current) return;
  const { side, i } = current, far = 1 - side;
  const clip = make("clipPath", { id: "clip" }, make("defs", {}, overlay));
  const box = boxes[far];
  make("rect", { x: box.x, y: box.y, width: box.w, height: box.h }, clip);
  const line = data.lines[side][i] || [];
  const path = [];
  for (let k = 0; k + 1 < line.length; k += 2)
    path.push(place(far, line[k], line[k + 1]).map((v) => v.toFixed(1)).join(","));
  const here = at(side, i);
  // The best on top.
  const edges = incident[side][i].slice(0, MOST_SHOWN).reverse();
  const colour = (e) => (data.state[e] === CHOSEN ? CHOSEN_COLOUR : rankColour(e));
  const kind = (e) => (data.state[e] === CHOSEN ? " chosen" : "");
  for (const e of edges) {
    const p = at(far, data.edges[far][e]);
    const ends = { x1: here[0], y1: here[1], x2: p[0], y2: p[1] };
    make("line", { class: "link" + kind(e), stroke: colour(e), ...ends }, overlay);
  }
  if (path.length) {
    const group = make("g", { "clip-path": "url(#clip)" }, overlay);
    make("polyline", { class: "casing", points: path.join(" ") }, group);
    make("polyline", { class: "epipolar", points: path.join(" ") }, group);
  }
  edges.sort((a, b) => (data.state[a] === CHOSEN) - (data.state[b] === CHOSEN));
  for (const e of edges) {
    const p = at(far, data.edges[far][e]);
    const group = make("g", { class: "candidate" + kind(e), "data-edge": e }, overlay);
    make("circle", { cx: p[0], cy: p[1], r: kind(e) ? 10 : 8.5, fill: colour(e) }, group);
    if (data.rank) make("text", { x: p[0], y: p[1] }, group).textContent = rankOf(e);
  }
  make("circle", { class: "here-casing", cx: here[0], cy: here[1], r: 8 }, overlay);
  make("circle", { class: "here", cx: here[0], cy: here[1], r: 8 }, overlay);
}

// The box below the images: what is known about the candidates of one keypoint.
// The surroundings of a keypoint, enlarged from the embedded photograph. Returns the canvas, and
// a function from pixels of the image to pixels of the canvas.
function patch(side, i, share) {
  const canvas = element("canvas");
  const edge = (canvas.width = canvas.height = 144);
  const image = panels[side].querySelector("img");
  const context = canvas.getContext("2d");
  const width = Math.max(16, share * Math.max(...data.sizes[side]));
  const corner = [0, 1].map((k) => data.points[side][2 * i + k] + 0.5 - width / 2);
  const zoom = edge / width;
  if (image && image.naturalWidth) {
    const scale = image.naturalWidth / data.sizes[side][0];
    const [x, y, w] = [corner[0] * scale, corner[1] * scale, width * scale];
    context.drawImage(image, x, y, w, w, 0, 0, edge, edge);
  }
  const map = (x, y) => [(x + 0.5 - corner[0]) * zoom, (y + 0.5 - corner[1]) * zoom];
  return { canvas, context, map };
}

function ring(context, [x, y], radius, colour) {
  for (const [width, style] of [[6, "#000a"], [3, colour]]) {
    context.lineWidth = width;
    context.strokeStyle = style;
    context.beginPath();
    context.arc(x, y, radius, 0, 7);
    context.stroke();
  }
}

function marked(side, i) {
  const { canvas, context, map } = patch(side, i, 0.06);
  ring(context, map(data.points[side][2 * i], data.points[side][2 * i + 1]), 9, "#fff");
  return canvas;
}

// All candidates that are close to the chosen one, with the epipolar line, much enlarged.
function loupe(side, i) {
  const far = 1 - side, edges = incident[side][i], chosen = chosenEdge(side, i);
  const { canvas, context, map } = patch(far, data.edges[far][chosen === undefined ? edges[0] : chosen], 0.03);
  const line = data.lines[side][i] || [];
  for (const [width, style] of [[6, "#000a"], [3, "#ffe14d"]]) {
    context.lineWidth = width;
    context.strokeStyle = style;
    context.beginPath();
    for (let k = 0; k + 1 < line.length; k += 2) context.lineTo(...map(line[k], line[k + 1]));
    context.stroke();
  }
  for (const e of edges.slice().reverse()) {
    const j = data.edges[far][e];
    const colour = data.state[e] === CHOSEN ? CHOSEN_COLOUR : rankColour(e);
    ring(context, map(data.points[far][2 * j], data.points[far][2 * j + 1]), 10, colour);
  }
  const figure = element("figure");
  figure.append(canvas, element("figcaption", "", line.length
    ? "close-up with the epipolar line" : "close-up"));
  return figure;
}

const verdictOf = (e, taken) => {
  if (data.state[e] === CHOSEN) return "chosen";
  if (data.state[e] === 1) return taken ? "consistent, not chosen" : "consistent";
  if (data.residual[e] === null) return "not chosen";
  return data.residual[e] < data.threshold ? "behind a camera" : "off the line";
};

function entry(far, e, taken) {
  const item = element("li", data.state[e] === CHOSEN ? "chosen" : "");
  item.style.setProperty("--swatch", rankColour(e));
  const text = element("div");
  text.append(element("div", "rank", data.rank ? `rank ${rankOf(e)}` : "candidate"));
  if (data.similarity) text.append(element("small", "", `similarity ${data.similarity[e].toFixed(3)}`));
  if (data.residual[e] !== null)
    text.append(element("small", "", `residual ${data.residual[e].toFixed(2)} px`));
  if (data.probability && data.probability[e] !== null)
    text.append(element("small", "", `probability ${data.probability[e].toFixed(2)}`));
  text.append(element("div", "tag", verdictOf(e, taken)));
  item.append(marked(far, data.edges[far][e]), text);
  return item;
}

function showDetail() {
  detail.replaceChildren();
  if (!current) {
    const hint = element("div", "hint");
    const some = data.state.length > 0;
    hint.append(element("p", "", some
      ? "Point at a keypoint, tap it, or focus an image and use the arrow keys: its candidates in the other image appear with rank and similarity, the chosen one, and its epipolar line."
      : "There are no candidates between these images."));
    if (some) hint.append(legend(), element("p", "", layerNote()));
    detail.append(hint);
    return;
  }
  const { side, i } = current, far = 1 - side;
  const edges = incident[side][i];
  const [x, y] = [data.points[side][2 * i], data.points[side][2 * i + 1]];
  const head = element("h3", "", `Keypoint ${data.ids[side][i]} of image ${side} `);
  const many = edges.length === 1 ? "1 candidate" : `${edges.length} candidates`;
  const line = (data.lines[side][i] || []).length || !data.lines[side].length ? "" : "; its epipolar line is outside the other image";
  head.append(element("small", "", `at (${x.toFixed(1)}, ${y.toFixed(1)}), ${many} in image ${far}${line}${held ? "; held until Escape or a second click" : ""}`));
  const list = element("ol", "patches");
  const self = element("li", "self");
  const taken = chosenEdge(side, i) !== undefined;
  self.append(marked(side, i));
  const near = element("li", "self near");
  near.append(loupe(side, i));
  list.append(self, ...edges.slice(0, MOST_SHOWN).map((e) => entry(far, e, taken)), near);
  detail.append(head, list);
  if (edges.length > MOST_SHOWN)
    detail.append(element("small", "", `and ${edges.length - MOST_SHOWN} more`));
}

function layerNote() {
  if (layer === "none") return "";
  if (layer === "candidates") return "Lines join all candidates, coloured by rank.";
  const number = layer === "matches" ? 0 : Number(layer.slice("other".length));
  const skip = every(data.layers[number].pairs[0].length);
  const lines = skip > 1 ? ` Lines are drawn for one match in ${skip}.` : "";
  return (number === 0 ? "Ends of a match have the same colour." : "These are its matches.") + lines;
}

function legend() {
  const key = element("p", "key");
  const add = (text, colour) => {
    const item = element("span", "", text);
    item.style.setProperty("--swatch", colour);
    key.append(item);
  };
  add("chosen", CHOSEN_COLOUR);
  if (data.rank) {
    const deepest = data.rank.reduce((a, b) => Math.max(a, b), 1);
    RANK_COLOURS.slice(0, deepest).forEach((colour, k) =>
      add(`rank ${k + 1}${k === 4 && deepest > 5 ? " and more" : ""}`, colour));
  } else add("candidate", RANK_COLOURS[0]);
  if (data.lines[0].length) add("epipolar line", "#ffe14d");
  return key;
}

// Mouse, finger and keyboard.
function select(next, hold) {
  const same = current && next && current.side === next.side && current.i === next.i;
  if (same && held === Boolean(hold)) return;
  current = next;
  held = Boolean(next && hold);
  drawFocus();
  showDetail();
}

function nearest(side, x, y, reach) {
  let best = null, least = reach * reach;
  for (let i = 0; i < incident[side].length; i++) {
    if (!incident[side][i].length) continue;
    const p = at(side, i), d = (p[0] - x) ** 2 + (p[1] - y) ** 2;
    if (d < least) { least = d; best = i; }
  }
  return best === null ? null : { side, i: best };
}

// The nearest keypoint within the quarter of the plane that an arrow key points to.
function neighbour({ side, i }, dx, dy) {
  const from = at(side, i);
  let best = null, least = Infinity;
  for (let k = 0; k < incident[side].length; k++) {
    if (k === i || !incident[side][k].length) continue;
    const p = at(side, k), u = p[0] - from[0], v = p[1] - from[1];
    const ahead = u * dx + v * dy, aside = Math.abs(u * dy) + Math.abs(v * dx);
    const cost = ahead + 2 * aside;
    if (ahead > 0 && aside <= ahead && cost < least) { least = cost; best = k; }
  }
  return best === null ? { side, i } : { side, i: best };
}

const pointOf = (event) => {
  const outer = stage.getBoundingClientRect();
  return [event.clientX - outer.left, event.clientY - outer.top];
};
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
panels.forEach((panel, side) => {
  let pressed = false;
  panel.addEventListener("pointermove", (event) => {
    if (event.pointerType === "mouse" && !held)
      select(nearest(side, ...pointOf(event), REACH_PX.mouse), false);
  });
  panel.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse" && !held) select(null, false);
  });
  panel.addEventListener("pointerdown", () => { pressed = true; });
  panel.addEventListener("click", (event) => {
    pressed = false;
    const reach = event.pointerType === "mouse" ? REACH_PX.mouse : REACH_PX.touch;
    const found = nearest(side, ...pointOf(event), reach);
    const again = held && found && current.side === side && current.i === found.i;
    select(again ? null : found, true);
  });
  panel.addEventListener("focus", () => {
    if (pressed || held) return;
    const box = boxes[side];
    select(nearest(side, box.x + box.w / 2, box.y + box.h / 2, Infinity), false);
  });
  panel.addEventListener("blur", () => { if (!held) select(null, false); });
  panel.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { select(null, false); return; }
    if (event.key === "Enter" || event.key === " ") {
      if (current) select(current, !held);
    } else if (ARROWS[event.key]) {
      const box = boxes[side];
      const start = current && current.side === side
        ? neighbour(current, ...ARROWS[event.key])
        : nearest(side, box.x + box.w / 2, box.y + box.h / 2, Infinity);
      select(start, held);
    } else return;
    event.preventDefault();
  });
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && held) select(null, false);
});

for (const input of document.querySelectorAll("input[name=layer]"))
  input.addEventListener("change", () => {
    layer = input.value;
    current = null;
    held = false;
    drawBulk();
    drawFocus();
    showDetail();
  });

// Matches that one-to-one matching would have lost, those farthest from the first choice first.
const gain = ({ i }) => {
  const [first, chosen] = [incident[0][i][0], chosenEdge(0, i)].map((e) => data.edges[1][e]);
  return Math.hypot(...[0, 1].map((k) => data.points[1][2 * first + k] - data.points[1][2 * chosen + k]));
};
const rescued = [...data.state.keys()]
  .filter((e) => data.state[e] === CHOSEN && data.rank && data.rank[e] > 1)
  .map((e) => ({ side: 0, i: data.edges[0][e] }))
  .sort((a, b) => gain(b) - gain(a));
if (rescued.length) {
  let turn = 0;
  step.hidden = false;
  step.textContent = "Step through matches beyond rank 1";
  step.addEventListener("click", () => {
    select(rescued[turn % rescued.length], true);
    step.textContent = `Next match beyond rank 1 (${(turn % rescued.length) + 1} of ${rescued.length})`;
    turn += 1;
  });
}

for (const button of document.querySelectorAll(".copy"))
  button.addEventListener("click", async () => {
    const text = button.parentNode.querySelector("pre");
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      // Some browsers give pages from a file no clipboard: leave the text selected instead.
      window.getSelection().selectAllChildren(text);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });

new ResizeObserver(layout).observe(stage);
layout();
showDetail();
}
