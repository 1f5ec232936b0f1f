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
