"use strict";
{
// Drawn over the two images: a layer of lines, and the candidates of one keypoint.
const stage = document.getElementById("stage");
const bulk = document.getElementById("bulk");
const overlay = document.getElementById("overlay");
const detail = document.getElementById("detail");
const step = document.getElementById("step");
const [zoomIn, zoomOut, zoomReset, zoomText] = ["in", "out", "reset", "zoom"].map((id) => document.getElementById(id));
const [embedded, hosted] = ["embedded", "hosted"].map((name) => document.body.classList.contains(name));
const panels = [0, 1].map((k) => document.getElementById("panel" + k));
const SVG = "http://www.w3.org/2000/svg";
const CHOSEN = 2;
const RANK_COLOURS = ["#4fc3ff", "#8b98ff", "#c58bff", "#ff7ec4", "#ffa14f"];
const CHOSEN_COLOUR = "#34e0ab", OTHER_COLOUR = "#ffb14a";
const REACH_PX = { mouse: 22, touch: 34 };
// The candidates of a keypoint: width beside the images and height below them, as in the styles.
const STRIP_PX = 124, GAP_PX = 14, STACKED_WEIGHT = 0.65;
const sideWidth = (wide) => Math.min(Math.max(0.23 * wide, 240), 360);
const MOST_SHOWN = 12;
const MOST_LINES = 160;
const MOST_ZOOM = 24, ZOOM_STEP = 1.5, DOUBLE_CLICK_ZOOM = 3, PAN_SHARE = 0.15;
// A pointer that moves farther drags; two clicks within this time and distance are a double click;
// a wheel that was scrolling or zooming goes on with it for as long.
const DRAG_PX = 4, DOUBLE_MS = 400, DOUBLE_PX = 24, WHEEL_MS = 300;

// The result: edges by keypoint, where incident[side][keypoint] is a list of edge numbers, best first;
// the chosen pose and the alternatives, one of which is shown; and the layer that is drawn.
let data, incident, poses, pose, layer;
const poseInputs = () => [...document.querySelectorAll("input[name=pose]")];
function readResult() {
  data = readData();
  incident = [0, 1].map((side) => Array.from(data.ids[side], () => []));
  for (let e = 0; e < data.state.length; e++)
    for (const side of [0, 1]) incident[side][data.edges[side][e]].push(e);
  poses = [{ ...data, pairs: data.layers[0].pairs }, ...data.alternatives];
  pose = poses[0];
  layer = document.querySelector("input[name=layer]:checked").value;
}
readResult();
const rankOf = (e) => (data.rank ? data.rank[e] : null);
const rankColour = (e) => RANK_COLOURS[Math.min(rankOf(e) || 1, RANK_COLOURS.length) - 1];
const sourceColour = (e) => data.sources[data.source[e]][1];
// The epipolar line of a keypoint in the other image, [x, y, x, y, ...] in pixels: the page has those
// that a lens bends, and of other cameras the fundamental matrix, row by row.
function epipolarLine(side, i) {
  const F = pose.fundamental;
  if (!F) return pose.lines[side][i] || [];
  const p = [data.points[side][2 * i], data.points[side][2 * i + 1], 1];
  const [a, b, c] = [0, 1, 2].map((r) => p.reduce((sum, v, k) => sum + v * F[side ? 3 * k + r : 3 * r + k], 0));
  const norm = Math.hypot(a, b), [w, h] = data.sizes[1 - side];
  // From the middle of the image to the line, which ends on a circle around the image.
  const away = (a * (w - 1) + b * (h - 1) + 2 * c) / (2 * norm), reach = Math.hypot(w, h) ** 2 / 4 - away ** 2;
  if (!(reach > 0)) return [];
  const [x, y] = [(w - 1) / 2 - (away * a) / norm, (h - 1) / 2 - (away * b) / norm];
  return [-1, 1].flatMap((s) => [x - (s * Math.sqrt(reach) * b) / norm, y + (s * Math.sqrt(reach) * a) / norm]);
}
const hasLines = () => Boolean(pose.fundamental) || pose.lines[0].length > 0;
const chosenEdge = (side, i) => incident[side][i].find((e) => pose.state[e] === CHOSEN);

let boxes = [null, null]; // where the images are within the stage, in CSS pixels
// What of each image is seen: the fraction u of its width is drawn at x + k * u of its box.
const views = [{ k: 1, x: 0, y: 0 }, { k: 1, x: 0, y: 0 }];
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
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
// Pixel centres are at whole numbers, so an image starts half a pixel earlier.
const place = (side, x, y) => {
  const box = boxes[side], size = data.sizes[side], view = views[side];
  return [
    box.x + (view.x + (view.k * (x + 0.5)) / size[0]) * box.w,
    box.y + (view.y + (view.k * (y + 0.5)) / size[1]) * box.h,
  ];
};
const at = (side, i) => place(side, data.points[side][2 * i], data.points[side][2 * i + 1]);
const middle = (side) => [boxes[side].x + boxes[side].w / 2, boxes[side].y + boxes[side].h / 2];
const border = (side, p) => {
  const box = boxes[side];
  return [clamp(p[0], box.x, box.x + box.w), clamp(p[1], box.y, box.y + box.h)];
};
const inside = (side, p) => {
  const q = border(side, p);
  return Math.hypot(p[0] - q[0], p[1] - q[1]) < 1;
};

// In a frame of the app, the height of the window is that of the app's, which tells it once.
let hostHeight = 800;
const windowHeight = () => (hosted ? hostHeight : window.innerHeight);

// Images side by side or below one another, and the candidates beside or below them: whichever
// shows the images larger. On a wide screen, images below one another must be much larger.
function layout() {
  const area = stage.parentNode, split = area.parentNode;
  const top = stage.getBoundingClientRect().top + window.scrollY;
  const narrow = window.matchMedia("(max-width: 719px)").matches;
  // Heights below the images, and the borders.
  const under = area.getBoundingClientRect().bottom - stage.getBoundingClientRect().bottom + (embedded ? 10 : 28);
  const high = narrow
    ? 0.56 * windowHeight()
    : Math.max(0.45 * windowHeight(), windowHeight() - top - under);
  const aspects = data.sizes.map(([w, h]) => w / h);
  const row = aspects[0] + aspects[1], column = 1 / (1 / aspects[0] + 1 / aspects[1]);
  const wide = split.clientWidth;
  const places = [{ below: false, width: narrow ? wide : wide - sideWidth(wide) - GAP_PX, room: high }];
  if (!narrow && !embedded) places.push({ below: true, width: wide, room: Math.max(high - STRIP_PX - GAP_PX, 200) });
  let best = null;
  for (const place of places)
    for (const stacked of [false, true]) {
      const aspect = stacked ? column : row, height = Math.min(place.width / aspect, place.room);
      const size = height ** 2 * aspect * (stacked && !narrow && !embedded ? STACKED_WEIGHT : 1);
      if (!best || size > best.size * (1 + 1e-9)) best = { ...place, stacked, size };
    }
  document.body.classList.toggle("stacked", best.stacked);
  document.body.classList.toggle("below", best.below);
  split.style.setProperty("--room", `${Math.round(best.room)}px`);
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

// Zoom and pan. The drawing follows once a frame.
let waiting = false;
function setView(side, k, x, y) {
  const view = views[side];
  view.k = clamp(k, 1, MOST_ZOOM);
  if (view.k < 1.001) view.k = 1;
  view.x = clamp(x, 1 - view.k, 0);
  view.y = clamp(y, 1 - view.k, 0);
  const image = panels[side].querySelector("img");
  if (image) {
    image.style.transform = view.k === 1 ? "" : `translate(${100 * view.x}%, ${100 * view.y}%) scale(${view.k})`;
    image.classList.toggle("pixels", view.k * boxes[side].w > 4 * image.naturalWidth);
  }
  panels[side].classList.toggle("zoomed", view.k > 1);
  const shown = views.map((v) => Math.round(100 * v.k));
  const said = `${shown[0] === shown[1] ? shown[0] : shown.join(" · ")} %`;
  if (zoomText.value !== said) zoomText.value = said;
  zoomReset.disabled = views.every((v) => v.k === 1);
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    drawBulk();
    drawFocus();
  });
}
// The image grows by a factor, and what was at one place of the stage comes to another.
function zoomAt(side, factor, from, to = from) {
  const view = views[side], box = boxes[side];
  const k = clamp(view.k * factor, 1, MOST_ZOOM), grown = k / view.k;
  const x = (to[0] - box.x) / box.w - ((from[0] - box.x) / box.w - view.x) * grown;
  const y = (to[1] - box.y) / box.h - ((from[1] - box.y) / box.h - view.y) * grown;
  setView(side, k, x, y);
}
const pan = (side, dx, dy) => zoomAt(side, 1, [0, 0], [dx, dy]);
function reveal(side, i) {
  const p = at(side, i), q = middle(side);
  if (!inside(side, p)) pan(side, q[0] - p[0], q[1] - p[1]);
}
// The keypoint shown and its match (or best candidate) as keypoints of images 0 and 1.
function shownPair() {
  const { side, i } = current, chosen = chosenEdge(side, i);
  const far = data.edges[1 - side][chosen === undefined ? incident[side][i][0] : chosen];
  return side === 0 ? [i, far] : [far, i];
}
const revealBoth = () => shownPair().forEach((i, side) => reveal(side, i));
function zoomBoth(factor) {
  if (current) revealBoth();
  const pair = current && shownPair();
  for (const side of [0, 1]) zoomAt(side, factor, pair ? at(side, pair[side]) : middle(side));
}
const resetZoom = () => [0, 1].forEach((side) => setView(side, 1, 0, 0));
zoomIn.addEventListener("click", () => zoomBoth(ZOOM_STEP));
zoomOut.addEventListener("click", () => zoomBoth(1 / ZOOM_STEP));
zoomReset.addEventListener("click", resetZoom);

// Dots for all, and lines between those both of whose ends are seen, but not too many of them.
let skip = 1; // every skip-th line is drawn
function drawPairs(context, pairs, colour, alpha, width, dots, most) {
  const ends = pairs.map((side, k) => Array.from(side, (i) => at(k, i)));
  const seen = ends.map((side, k) => side.map((p) => inside(k, p)));
  const whole = [...ends[0].keys()].filter((k) => seen[0][k] && seen[1][k]);
  skip = Math.max(1, Math.ceil(whole.length / most));
  context.lineWidth = width;
  context.globalAlpha = alpha;
  for (let n = 0; n < whole.length; n += skip) {
    const k = whole[n];
    context.strokeStyle = colour(k);
    context.beginPath();
    context.moveTo(...ends[0][k]);
    context.lineTo(...ends[1][k]);
    context.stroke();
  }
  context.globalAlpha = 1;
  context.lineWidth = 1;
  context.strokeStyle = "#0b0f16";
  for (let k = 0; k < ends[0].length; k++)
    for (const side of [0, 1]) {
      if (!seen[side][k]) continue;
      context.fillStyle = colour(k);
      context.beginPath();
      context.arc(...ends[side][k], dots, 0, 7);
      context.fill();
      context.stroke();
    }
}

// Matches are coloured from left to right in image 0, so that an end can be told from others.
const byPlace = (pairs) => {
  const x = Array.from(pairs[0], (i) => data.points[0][2 * i]);
  const hues = [];
  [...x.keys()].sort((a, b) => x[a] - x[b]).forEach((k, place) => {
    hues[k] = Math.round(45 + (265 * place) / x.length);
  });
  return (k) => `hsl(${hues[k]} 95% 67%)`;
};

const bySource = (pairs) => {
  const edges = Array.from(pairs[0], (i, k) => incident[0][i].find((e) => data.edges[1][e] === pairs[1][k]));
  return (k) => (edges[k] === undefined ? OTHER_COLOUR : sourceColour(edges[k]));
};

function drawBulk() {
  const context = bulk.getContext("2d");
  context.clearRect(0, 0, bulk.width, bulk.height);
  if (layer === "none") return;
  // Larger where there is more room for them.
  const dot = (boxes[0].w < 420 ? 1.8 : 2.6) * Math.max(views[0].k, views[1].k) ** 0.25;
  if (layer === "candidates") {
    // Later ranks first, so that the best ones lie on top.
    const order = [...pose.state.keys()].reverse();
    const pairs = [0, 1].map((side) => order.map((e) => data.edges[side][e]));
    const alpha = Math.max(0.06, Math.min(0.85, 110 / Math.max(order.length, 1)));
    drawPairs(context, pairs, (k) => rankColour(order[k]), alpha, 1, dot * 0.8, Infinity);
    return;
  }
  const number = layer.startsWith("other") ? Number(layer.slice("other".length)) : 0;
  const pairs = number === 0 ? pose.pairs : data.layers[number].pairs;
  const colour = layer === "sources" ? bySource(pairs) : number === 0 ? byPlace(pairs) : () => OTHER_COLOUR;
  drawPairs(context, pairs, colour, 0.5, 1.2, dot, MOST_LINES);
  const note = document.getElementById("note");
  if (note) note.textContent = layerNote();
}

function drawFocus() {
  overlay.replaceChildren();
  stage.classList.toggle("focused", current !== null);
  if (!current) return;
  const { side, i } = current, far = 1 - side;
  const clip = make("clipPath", { id: "clip" }, make("defs", {}, overlay));
  const box = boxes[far];
  make("rect", { x: box.x, y: box.y, width: box.w, height: box.h }, clip);
  const line = epipolarLine(side, i);
  const path = [];
  for (let k = 0; k + 1 < line.length; k += 2)
    path.push(place(far, line[k], line[k + 1]).map((v) => v.toFixed(1)).join(","));
  const here = at(side, i);
  // The best on top.
  const edges = incident[side][i].slice(0, MOST_SHOWN).reverse();
  const colour = (e) => (pose.state[e] === CHOSEN ? CHOSEN_COLOUR : rankColour(e));
  const kind = (e) => (pose.state[e] === CHOSEN ? " chosen" : "");
  for (const e of edges) {
    // Where an end is not seen, the line stops at the border and is dashed.
    const p = at(far, data.edges[far][e]), a = border(side, here), b = border(far, p);
    const off = inside(side, here) && inside(far, p) ? "" : " off";
    const ends = { x1: a[0], y1: a[1], x2: b[0], y2: b[1] };
    make("line", { class: "link" + kind(e) + off, stroke: colour(e), ...ends }, overlay);
  }
  if (path.length) {
    const group = make("g", { "clip-path": "url(#clip)" }, overlay);
    make("polyline", { class: "casing", points: path.join(" ") }, group);
    make("polyline", { class: "epipolar", points: path.join(" ") }, group);
  }
  edges.sort((a, b) => (pose.state[a] === CHOSEN) - (pose.state[b] === CHOSEN));
  for (const e of edges) {
    const p = at(far, data.edges[far][e]);
    if (!inside(far, p)) continue;
    const group = make("g", { class: "candidate" + kind(e), "data-edge": e }, overlay);
    make("circle", { cx: p[0], cy: p[1], r: kind(e) ? 10 : 8.5, fill: colour(e) }, group);
    if (data.rank) make("text", { x: p[0], y: p[1] }, group).textContent = rankOf(e);
  }
  if (!inside(side, here)) return;
  make("circle", { class: "here-casing", cx: here[0], cy: here[1], r: 8 }, overlay);
  make("circle", { class: "here", cx: here[0], cy: here[1], r: 8 }, overlay);
}

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
  const line = epipolarLine(side, i);
  for (const [width, style] of [[6, "#000a"], [3, "#ffe14d"]]) {
    context.lineWidth = width;
    context.strokeStyle = style;
    context.beginPath();
    for (let k = 0; k + 1 < line.length; k += 2) context.lineTo(...map(line[k], line[k + 1]));
    context.stroke();
  }
  for (const e of edges.slice().reverse()) {
    const j = data.edges[far][e];
    const colour = pose.state[e] === CHOSEN ? CHOSEN_COLOUR : rankColour(e);
    ring(context, map(data.points[far][2 * j], data.points[far][2 * j + 1]), 10, colour);
  }
  return captioned(canvas, "close-up");
}

function captioned(canvas, text) {
  const figure = element("figure");
  figure.append(canvas, element("figcaption", "", text));
  return figure;
}

const verdictOf = (e, taken) => {
  if (pose.state[e] === CHOSEN) return "chosen";
  if (pose.state[e] === 1) return taken ? "consistent, not chosen" : "consistent";
  if (!Number.isFinite(pose.residual[e])) return "not chosen";
  return pose.residual[e] < data.threshold ? "behind a camera" : "off the line";
};

function entry(far, e, taken) {
  const item = element("li", pose.state[e] === CHOSEN ? "chosen" : "");
  item.style.setProperty("--swatch", rankColour(e));
  const text = element("div");
  text.append(element("div", "rank", data.rank ? `rank ${rankOf(e)}` : "candidate"));
  text.append(element("div", "tag", verdictOf(e, taken)));
  if (data.sources.length) text.append(element("small", "", `from ${data.sources[data.source[e]][0]}`));
  if (data.similarity) text.append(element("small", "", `similarity ${data.similarity[e].toFixed(3)}`));
  if (Number.isFinite(pose.residual[e]))
    text.append(element("small", "", `residual ${pose.residual[e].toFixed(2)} px`));
  if (pose.probability && !Number.isNaN(pose.probability[e]))
    text.append(element("small", "", `probability ${pose.probability[e].toFixed(2)}`));
  item.append(marked(far, data.edges[far][e]), text);
  return item;
}

function showDetail() {
  detail.replaceChildren();
  detail.scrollTop = 0;
  detail.parentNode.classList.toggle("showing", current !== null);
  if (!current) {
    const hint = element("div", "hint");
    const some = data.state.length > 0;
    hint.append(element("p", "", some
      ? "Point at a keypoint or tap it: its candidates in the other image appear with rank and similarity, the chosen one, and its epipolar line."
      : "There are no candidates between these images."));
    if (some) hint.append(legend());
    const note = element("p", "", layerNote());
    note.id = "note";
    hint.append(note);
    if (some && !embedded) {
      const help = document.getElementById("help").cloneNode(true);
      help.removeAttribute("id");
      help.hidden = false;
      hint.append(help);
    }
    detail.append(hint);
    return;
  }
  const { side, i } = current, far = 1 - side;
  const edges = incident[side][i];
  const [x, y] = [data.points[side][2 * i], data.points[side][2 * i + 1]];
  const head = element("h3", "", `Keypoint ${data.ids[side][i]} of image ${side} `);
  const many = edges.length === 1 ? "1 candidate" : `${edges.length} candidates`;
  const line = epipolarLine(side, i).length || !hasLines() ? "" : "; its epipolar line is outside the other image";
  head.append(element("small", "", `at (${x.toFixed(1)}, ${y.toFixed(1)}), ${many} in image ${far}${line}${held ? "; held until a click or Escape" : ""}`));
  const list = element("ol", "patches scroll");
  const self = element("li", "self");
  const taken = chosenEdge(side, i) !== undefined;
  self.append(captioned(marked(side, i), "this keypoint"));
  const near = element("li", "self near");
  near.append(loupe(side, i));
  list.append(self, near, ...edges.slice(0, MOST_SHOWN).map((e) => entry(far, e, taken)));
  detail.append(head, list);
  if (edges.length > MOST_SHOWN)
    detail.append(element("small", "", `and ${edges.length - MOST_SHOWN} more`));
}

function layerNote() {
  if (layer === "none" || !data.state.length) return "";
  if (layer === "candidates") return "Lines join all candidates, coloured by rank.";
  const lines = skip > 1 ? ` Lines are drawn for one match in ${skip}.` : "";
  const said = { matches: "Ends of a match have the same colour.", sources: "Matches have the colour of their source." };
  return (said[layer] || "These are its matches.") + lines;
}

function legend() {
  const key = element("p", "key");
  const add = (text, colour) => {
    const item = element("span", "", text);
    item.style.setProperty("--swatch", colour);
    key.append(item);
  };
  if (layer === "sources") {
    for (const [name, colour] of data.sources) add(name, colour);
    return key;
  }
  add("chosen", CHOSEN_COLOUR);
  if (data.rank) {
    const deepest = data.rank.reduce((a, b) => Math.max(a, b), 1);
    RANK_COLOURS.slice(0, deepest).forEach((colour, k) =>
      add(`rank ${k + 1}${k === 4 && deepest > 5 ? " and more" : ""}`, colour));
  } else add("candidate", RANK_COLOURS[0]);
  if (hasLines()) add("epipolar line", "#ffe14d");
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
    if (d < least && (reach === Infinity || inside(side, p))) { least = d; best = i; }
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
const FACTORS = { "+": ZOOM_STEP, "=": ZOOM_STEP, "-": 1 / ZOOM_STEP, "_": 1 / ZOOM_STEP };
let scrolledAt = -Infinity, zoomedAt = -Infinity;
window.addEventListener("scroll", () => { scrolledAt = performance.now(); }, { passive: true });
panels.forEach((panel, side) => {
  const pointers = new Map(); // those that are down, by their id: where they are
  let pressed = false, dragged = false, start = null, clicked = null;
  const hover = (event) => {
    if (event.pointerType !== "touch" && !held)
      select(nearest(side, ...pointOf(event), REACH_PX.mouse), false);
  };
  panel.addEventListener("pointerdown", (event) => {
    pressed = true;
    pointers.set(event.pointerId, pointOf(event));
    if (pointers.size === 1) { dragged = false; start = pointOf(event); }
    if (views[side].k > 1) panel.setPointerCapture(event.pointerId);
  });
  panel.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId), now = pointOf(event);
    if (!before) { hover(event); return; }
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    pointers.set(event.pointerId, now);
    if (other) {
      // Two fingers: their distance zooms, their middle pans.
      const apart = (p) => Math.max(8, Math.hypot(p[0] - other[0], p[1] - other[1]));
      const between = (p) => [(p[0] + other[0]) / 2, (p[1] + other[1]) / 2];
      zoomAt(side, apart(now) / apart(before), between(before), between(now));
      dragged = true;
    } else if (views[side].k > 1 && (dragged || Math.hypot(now[0] - start[0], now[1] - start[1]) > DRAG_PX)) {
      // The pixels before it was a drag count, too.
      if (!dragged) [before[0], before[1]] = start;
      dragged = true;
      panel.classList.add("dragging");
      pan(side, now[0] - before[0], now[1] - before[1]);
    }
  });
  for (const end of ["pointerup", "pointercancel"])
    panel.addEventListener(end, (event) => {
      pointers.delete(event.pointerId);
      if (!pointers.size) panel.classList.remove("dragging");
    });
  panel.addEventListener("pointerleave", (event) => {
    if (!panel.hasPointerCapture(event.pointerId)) pointers.delete(event.pointerId);
    if (event.pointerType === "mouse" && !held) select(null, false);
  });
  // One finger scrolls the page unless the image is zoomed; two always are ours.
  panel.addEventListener("touchmove", (event) => {
    if ((event.touches.length > 1 || views[side].k > 1) && event.cancelable) event.preventDefault();
  }, { passive: false });
  panel.addEventListener("wheel", (event) => {
    const inwards = event.deltaY < 0, now = performance.now();
    if (!event.ctrlKey) {
      if (embedded && !stage.contains(document.activeElement)) return;
      // The page scrolls on where it was scrolling, and where there is nothing to zoom out of.
      if (views[side].k === 1 && (inwards ? now - scrolledAt < WHEEL_MS : now - zoomedAt > WHEEL_MS)) return;
    }
    event.preventDefault();
    zoomedAt = now;
    const lines = [1, 16, 400][event.deltaMode];
    zoomAt(side, Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.002)), pointOf(event));
    hover(event);
  }, { passive: false });
  panel.addEventListener("click", (event) => {
    pressed = false;
    if (dragged) { dragged = false; return; }
    const p = pointOf(event), now = performance.now();
    if (clicked && now - clicked.time < DOUBLE_MS && Math.hypot(p[0] - clicked.x, p[1] - clicked.y) < DOUBLE_PX) {
      clicked = null;
      select(null, false);
      if (views.some((v) => v.k > 1)) resetZoom();
      else zoomAt(side, DOUBLE_CLICK_ZOOM, p);
      return;
    }
    clicked = { time: now, x: p[0], y: p[1] };
    const touch = event.pointerType === "touch" || event.pointerType === "pen";
    const found = nearest(side, ...p, touch ? REACH_PX.touch : REACH_PX.mouse);
    const again = held && found && current.side === side && current.i === found.i;
    select(again ? null : found, true);
    if (current) reveal(1 - side, shownPair()[1 - side]);
    if (current && touch) uncover();
  });
  panel.addEventListener("focus", () => {
    if (pressed || held) return;
    select(nearest(side, ...middle(side), Infinity), false);
  });
  panel.addEventListener("blur", () => { pressed = false; if (!held) select(null, false); });
  panel.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const arrow = ARROWS[event.key];
    if (event.key === "Escape") { select(null, false); return; }
    if (event.key === "Enter" || event.key === " ") {
      if (current) select(current, !held);
    } else if (FACTORS[event.key]) zoomBoth(FACTORS[event.key]);
    else if (event.key === "0") resetZoom();
    else if (event.key.toLowerCase() === "p" && poses.length > 1) nextPose();
    else if (arrow && event.shiftKey) {
      const box = boxes[side];
      pan(side, -arrow[0] * PAN_SHARE * box.w, -arrow[1] * PAN_SHARE * box.h);
    } else if (arrow) {
      select(current && current.side === side
        ? neighbour(current, ...arrow)
        : nearest(side, ...middle(side), Infinity), held);
      if (current) revealBoth();
    } else return;
    event.preventDefault();
  });
});
// On a small screen the candidates come up from below: the images move above them.
function uncover() {
  const box = stage.getBoundingClientRect(), sheet = detail.parentNode.getBoundingClientRect();
  if (sheet.left < box.right && (box.bottom > sheet.top || box.top < 0))
    window.scrollBy({ top: box.top - 8, behavior: "instant" });
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && held) select(null, false);
});

document.addEventListener("change", ({ target }) => {
  if (target.name === "pose") showPose(Number(target.value));
  if (target.name === "layer") showLayer(target.value);
});
function showLayer(name) {
  layer = name;
  current = null;
  held = false;
  drawBulk();
  drawFocus();
  showDetail();
}

// Matches that one-to-one matching would have lost, those farthest from the first choice first.
const gain = ({ i }) => {
  const [first, chosen] = [incident[0][i][0], chosenEdge(0, i)].map((e) => data.edges[1][e]);
  return Math.hypot(...[0, 1].map((k) => data.points[1][2 * first + k] - data.points[1][2 * chosen + k]));
};
let rescued = [], turn = 0;
function findRescued() {
  rescued = [...pose.state.keys()]
    .filter((e) => pose.state[e] === CHOSEN && data.rank && data.rank[e] > 1)
    .map((e) => ({ side: 0, i: data.edges[0][e] }))
    .sort((a, b) => gain(b) - gain(a));
  turn = 0;
  step.hidden = !rescued.length;
  step.textContent = "Next beyond rank 1";
}
step.title = "Step through the matches that rank-one matching would have lost";
step.addEventListener("click", () => {
  select(rescued[turn % rescued.length], true);
  revealBoth();
  uncover();
  step.textContent = `Beyond rank 1: ${(turn % rescued.length) + 1} of ${rescued.length}`;
  turn += 1;
});
findRescued();

// Switch to another pose: drawing, text and counts change, the keypoint that is shown stays.
function showPose(number) {
  pose = poses[number];
  poseInputs()[number].checked = true;
  document.getElementById("said").textContent = data.said[number];
  for (const matches of document.querySelectorAll("input:is([value=matches], [value=sources]) + span b"))
    matches.textContent = data.counts[number].toLocaleString("en");
  for (const part of document.querySelectorAll("[data-pose]")) part.hidden = Number(part.dataset.pose) !== number;
  findRescued();
  drawBulk();
  drawFocus();
  showDetail();
}
const nextPose = () => showPose((poses.indexOf(pose) + 1) % poses.length);

document.addEventListener("click", async ({ target }) => {
  if (!target.matches(".copy")) return;
  const text = target.parentNode.querySelector("pre");
  try {
    await navigator.clipboard.writeText(text.textContent);
    target.textContent = "Copied";
  } catch {
    // Some browsers give pages from a file no clipboard: leave the text selected instead.
    window.getSelection().selectAllChildren(text);
    target.textContent = "Selected";
  }
  setTimeout(() => { target.textContent = "Copy"; }, 1500);
});

// Folded parts are printed as well.
window.addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
});
if (hosted) {
  let told = false;
  const tell = () => {
    const height = Math.ceil(document.body.getBoundingClientRect().height);
    window.parent.postMessage({ manymatch: height, told }, "*");
  };
  window.addEventListener("message", (event) => {
    if (event.source !== window.parent) return;
    if (typeof event.data?.page === "string") replaceResult(event.data.page);
    if (Number.isFinite(event.data?.manymatch)) {
      hostHeight = event.data.manymatch;
      told = true;
      layout();
    }
    tell();
  });
  new ResizeObserver(tell).observe(document.body);
  tell();
}
// Show another result of the same photographs, from its page. The photographs, their zoom, the layer and
// what the reader opened stay.
function replaceResult(page) {
  const next = new DOMParser().parseFromString(page, "text/html");
  const folds = () => [...document.querySelectorAll("details")];
  const open = folds().map((fold) => fold.open), shown = layer;
  for (const name of [".banner", "#poses", "#layers", ".folds", "#data"])
    document.querySelector(name).replaceWith(next.querySelector(name));
  panels.forEach((panel) => { panel.ariaLabel = next.getElementById(panel.id).ariaLabel; });
  folds().forEach((fold, k) => { fold.open = open[k]; });
  document.title = next.title;
  readResult();
  const same = document.querySelector(`input[name=layer][value=${shown}]`);
  if (same) same.checked = true;
  layer = same ? shown : layer;
  current = null;
  held = false;
  findRescued();
  layout();
  showDetail();
}

const observer = new ResizeObserver(layout);
for (const node of [stage, stage.parentNode]) observer.observe(node);
window.addEventListener("resize", layout);
layout();
showDetail();
// A browser that goes back to the page may have kept another pose.
const restored = poseInputs().findIndex((input) => input.checked);
if (restored > 0) showPose(restored);
}
