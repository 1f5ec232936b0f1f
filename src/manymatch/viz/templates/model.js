"use strict";
{
// ------------------------------------------------------------------------------- the data
const byId = (id) => document.getElementById(id);
const data = readData();
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const thousands = (number) => number.toLocaleString("en-US");
const counted = (number, one, many = `${one}s`) => `${thousands(number)} ${number === 1 ? one : many}`;
const still = matchMedia("(prefers-reduced-motion: reduce)");
const DRAG_PX = 4, REACH_PX = 22, DOUBLE_MS = 350, WHEEL_MS = 300, ZOOM_STEP = 1.25;

// First place of each group, of which the sizes are given, and the end of the last.
function starts(sizes) {
  const places = new Uint32Array(sizes.length + 1);
  for (let k = 0; k < sizes.length; k++) places[k + 1] = places[k] + sizes[k];
  return places;
}
const element = (name, className, ...content) => {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...content);
  return node;
};
const button = (className, act, ...content) => {
  const node = element("button", className, ...content);
  node.type = "button";
  node.addEventListener("click", act);
  return node;
};

const shots = [...document.querySelectorAll(".shot")];
const names = shots.map((shot) => shot.title);
const photos = shots.map((shot) => shot.querySelector("img"));
const pairs = data.pairs;
const lineStart = starts(pairs.linesOf);
const pairsOf = names.map(() => []);
for (let p = 0; p < pairs.first.length; p++)
  for (const image of [pairs.first[p], pairs.second[p]]) pairsOf[image].push(p);
const other = (p, image) => (pairs.first[p] === image ? pairs.second[p] : pairs.first[p]);
const reasonOf = (p) => pairs.reasons[pairs.reason[p]];
const verdictOf = (p) => pairs.verdicts[pairs.verdict[p]];
const probabilityText = (p) => {
  const value = pairs.probability[p];
  return value >= 0.9995 ? "> 0.999" : value < 0.0005 ? "< 0.001" : value.toFixed(3);
};
const acceptedFirst = (a, b) => pairs.accepted[b] - pairs.accepted[a] || pairs.matches[b] - pairs.matches[a];

// Rows of cameras: image, centre, axes (right, down, ahead), half the width and height at distance 1.
const CAMERA = 15;
const models = data.models.map((packed) => {
  const rows = packed.cameras;
  const cameras = [];
  for (let k = 0; k < rows.length; k += CAMERA) {
    const row = rows.subarray(k, k + CAMERA);
    cameras.push({ image: row[0], centre: row.subarray(1, 4), axes: [4, 7, 10].map((at) => row.subarray(at, at + 3)), half: row.subarray(13, 15) });
  }
  return { packed, cameras, depth: packed.depth, cameraOf: new Map(cameras.map((camera, k) => [camera.image, k])) };
});
function opened(model) {
  if (!model.points) {
    model.points = model.packed.points;
    const rgb = model.packed.colors;
    model.colors = new Uint8Array((rgb.length / 3) * 4).fill(255);
    for (let k = 0; k < rgb.length; k++) model.colors[k + Math.floor(k / 3)] = rgb[k];
    model.seen = model.packed.seen;
    model.seenStart = starts(model.packed.seenBy);
  }
  return model;
}
const homeOf = names.map((_, image) => models.findIndex((model) => model.cameraOf.has(image)));

// Colour of a probability: orange, sand, teal, which colour-blind people can tell as well.
const STOPS = [[206, 74, 28], [242, 208, 128], [16, 150, 126]];
function shade(probability) {
  const at = clamp(probability, 0, 1) * 2, k = Math.min(Math.floor(at), 1);
  return STOPS[k].map((value, c) => Math.round(value + (STOPS[k + 1][c] - value) * (at - k)));
}
const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;

// What is chosen, and what the mouse or the focus is at.
const state = { model: 0, image: null, pair: null, over: null, overPair: null };
const current = () => models[state.model];

// ------------------------------------------------------------------------------- the 3D view
const space = byId("space"), view = byId("view"), label = byId("label");
const [dots, frusta, photosOn, linksOn] = ["dots", "frusta", "photos", "links"].map(byId);
const LENS = 0.4, ATLAS = 2048, LINE_FLOATS = 11, MOST_SHARP = 2, LARGER = 1.25, NEAR = 0.002, CROWD = 250;
const SELECTED = [52, 224, 171], PLAIN = [148, 168, 198], WHITE = [255, 255, 255];
const sources = {
  point: [
    `attribute vec3 place; attribute vec4 colour; uniform mat4 M; uniform vec3 size; uniform vec4 tint; varying vec3 shown;
     void main() { gl_Position = M * vec4(place, 1.0); gl_PointSize = clamp(size.x / gl_Position.w, size.y, size.z); shown = mix(colour.rgb, tint.rgb, tint.a); }`,
    `precision mediump float; varying vec3 shown; void main() { gl_FragColor = vec4(shown, 1.0); }`,
  ],
  photo: [
    `attribute vec3 place; attribute vec3 tile; uniform mat4 M; varying vec3 at; void main() { gl_Position = M * vec4(place, 1.0); at = tile; }`,
    `precision mediump float; uniform sampler2D atlas; varying vec3 at; void main() { gl_FragColor = vec4(texture2D(atlas, at.xy, -0.7).rgb, at.z); }`,
  ],
  // A line is a rectangle on the screen with soft edges; how is end, side, width and dash.
  line: [
    `attribute vec3 start; attribute vec3 stop; attribute vec4 how; attribute vec4 colour; uniform mat4 M; uniform vec3 screen; varying vec4 shown; varying vec4 at;
     void main() {
       vec4 a = M * vec4(start, 1.0), b = M * vec4(stop, 1.0); float near = 0.002;
       shown = colour; at = vec4(0.0); gl_Position = vec4(2.0, 2.0, 2.0, 1.0);
       if (a.w < near && b.w < near) return;
       if (a.w < near) a = mix(a, b, (near - a.w) / (b.w - a.w)); else if (b.w < near) b = mix(b, a, (near - b.w) / (a.w - b.w));
       vec2 way = (b.xy / b.w - a.xy / a.w) * screen.xy; float length_px = max(length(way), 0.001); way /= length_px;
       float half_px = 0.5 * how.z * screen.z + 0.5;
       vec4 end = how.x < 0.5 ? a : b;
       gl_Position = vec4(end.xyz / end.w, 1.0);
       gl_Position.xy += vec2(-way.y, way.x) * how.y * half_px / screen.xy;
       at = vec4(how.y * half_px, half_px, how.x * length_px, how.w * screen.z);
     }`,
    `precision mediump float; varying vec4 shown; varying vec4 at;
     void main() { if (at.w > 0.0 && fract(at.z / at.w) > 0.55) discard; gl_FragColor = vec4(shown.rgb, shown.a * clamp(at.y - abs(at.x), 0.0, 1.0)); }`,
  ],
};
// Turns about (x, y, z), which is dist in front of the eye; lens is half the height at distance 1.
let pose = { x: 0, y: 0, z: 0, yaw: 0, pitch: 0, roll: 0, dist: 3, lens: LENS };
let size = { width: 1, height: 1 }, gl = null, flat = null, kit = null, queued = false, through = false, stale = true;

// The view at the start: what is near fills it, from above and a little from the side.
function home() {
  const model = opened(current()), wide = (LENS * size.width) / size.height, rows = [];
  const found = { ...pose, x: 0, y: 0, z: 0, yaw: 0.42, pitch: 0.32, roll: 0, dist: 0, lens: LENS };
  const { ahead, right, up } = axes(found), add = (p) => { if (dot(p, p) < 1.2) rows.push([dot(right, p), dot(up, p), dot(ahead, p)]); };
  const step = 3 * Math.ceil(model.points.length / 12000);
  for (let k = 0; k < model.points.length; k += step) add(model.points.subarray(k, k + 3));
  const far = rows.length >> 6; // points at each border that may be cut off
  for (const camera of model.cameras) for (let k = 0; k <= far; k++) add(camera.centre);
  if (!rows.length) return { ...found, dist: 2.5 };
  // Lines of sight at the borders, through all but the farthest points, give distance and middle.
  const bound = (axis, slope) => rows.map((row) => row[axis] - slope * row[2]).sort((a, b) => a - b)[slope > 0 ? rows.length - 1 - far : far];
  const middle = [0, 1].map((axis) => {
    const slope = axis ? LENS * 0.86 : wide * 0.9, high = bound(axis, slope), low = bound(axis, -slope);
    return [(high + low) / 2, (high - low) / 2 / slope];
  });
  ["x", "y", "z"].forEach((key, k) => { found[key] = right[k] * middle[0][0] + up[k] * middle[1][0]; });
  return { ...found, dist: clamp(Math.max(middle[0][1], middle[1][1]), 0.2, 10) };
}
function axes({ x, y, z, yaw, pitch, roll, dist } = pose) {
  const [sy, cy, sp, cp, sr, cr] = [yaw, pitch, roll].flatMap((angle) => [Math.sin(angle), Math.cos(angle)]);
  const ahead = [-sy * cp, cy * cp, -sp], level = [cy, sy, 0], steep = [-sy * sp, cy * sp, cp];
  const right = level.map((value, k) => cr * value + sr * steep[k]), up = steep.map((value, k) => cr * value - sr * level[k]);
  const eye = [x, y, z].map((value, k) => value - dist * ahead[k]);
  return { ahead, right, up, eye };
}
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
function depthRange() {
  const near = Math.min(0.01, 0.01 * pose.dist), far = pose.dist + 60;
  return [(far + near) / (far - near), (-2 * far * near) / (far - near)];
}
// Columns of the matrix from the page's space to clip space.
function matrix() {
  const { ahead, right, up, eye } = axes(), [sz, tz] = depthRange();
  const [sy, sx] = [1 / pose.lens, size.height / size.width / pose.lens];
  const M = new Float32Array(16);
  for (let k = 0; k < 3; k++) M.set([right[k] * sx, up[k] * sy, ahead[k] * sz, ahead[k]], 4 * k);
  M.set([-dot(right, eye) * sx, -dot(up, eye) * sy, -dot(ahead, eye) * sz + tz, -dot(ahead, eye)], 12);
  return M;
}
// Pixels of the canvas and depth.
const project = (M, [x, y, z]) => {
  const w = M[3] * x + M[7] * y + M[11] * z + M[15];
  const a = (M[0] * x + M[4] * y + M[8] * z + M[12]) / w, b = (M[1] * x + M[5] * y + M[9] * z + M[13]) / w;
  return [(a + 1) * 0.5 * size.width, (1 - b) * 0.5 * size.height, w];
};

// Software draws WebGL's points one by one, which takes it ten times as long as the script below.
function drawsFast() {
  const probe = element("canvas").getContext("webgl2"), named = probe && probe.getExtension("WEBGL_debug_renderer_info");
  byId("blind").hidden = probe !== null;
  const by = probe && probe.getParameter(named ? named.UNMASKED_RENDERER_WEBGL : probe.RENDERER);
  return probe && !/swiftshader|llvmpipe|softpipe|software|basic render/i.test(by);
}
// Without a graphics card the script draws points, and lines and photographs over them.
function startGraphics() {
  kit = { programs: {}, buffers: {}, counts: {}, copies: new Map() };
  if (drawsFast()) gl = view.getContext("webgl2", { antialias: false, alpha: false, powerPreference: "high-performance" });
  else flat = view.getContext("2d", { alpha: false });
  if (!gl) return flat !== null;
  const compile = (kind, text) => {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    return shader;
  };
  for (const [name, [vertex, fragment]] of Object.entries(sources)) {
    const program = gl.createProgram();
    gl.attachShader(program, compile(gl.VERTEX_SHADER, vertex));
    gl.attachShader(program, compile(gl.FRAGMENT_SHADER, fragment));
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) return false;
    const [places, uniforms] = [{}, {}];
    for (let k = 0; k < gl.getProgramParameter(program, gl.ACTIVE_ATTRIBUTES); k++) {
      const attribute = gl.getActiveAttrib(program, k).name;
      places[attribute] = gl.getAttribLocation(program, attribute);
    }
    for (let k = 0; k < gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS); k++) {
      const uniform = gl.getActiveUniform(program, k).name;
      uniforms[uniform] = gl.getUniformLocation(program, uniform);
    }
    kit.programs[name] = { program, places, uniforms };
  }
  for (const name of ["points", "colors", "seen", "quads", "lines", "indices"]) kit.buffers[name] = gl.createBuffer();
  gl.enable(gl.DEPTH_TEST);
  gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
  return true;
}
function upload(name, array, count) {
  kit.counts[name] = count;
  if (flat) return;
  gl.bindBuffer(gl.ARRAY_BUFFER, kit.buffers[name]);
  gl.bufferData(gl.ARRAY_BUFFER, array, gl.STATIC_DRAW);
}
function bind(program, name, layout, stride) {
  gl.bindBuffer(gl.ARRAY_BUFFER, kit.buffers[name]);
  for (const [attribute, count, kind, offset] of layout) {
    const place = program.places[attribute];
    gl.enableVertexAttribArray(place);
    gl.vertexAttribPointer(place, count, kind, kind === gl.UNSIGNED_BYTE, stride, offset);
  }
}

function shrunk(copy, longest) {
  const part = Math.min(1, longest / Math.max(copy.naturalWidth, copy.naturalHeight)), small = element("canvas");
  small.width = Math.max(1, Math.round(copy.naturalWidth * part));
  small.height = Math.max(1, Math.round(copy.naturalHeight * part));
  small.getContext("2d", { willReadFrequently: true }).drawImage(copy, 0, 0, small.width, small.height);
  return small;
}
// All photographs in one texture; those that are still being decoded come later.
function makeAtlas() {
  const images = [...new Set(models.flatMap((model) => model.cameras.map((camera) => camera.image)))].filter((image) => photos[image]);
  const along = Math.max(1, Math.ceil(Math.sqrt(images.length))), tile = Math.floor(ATLAS / along);
  const sheet = element("canvas"), context = sheet.getContext("2d");
  sheet.width = sheet.height = ATLAS;
  kit.tiles = new Map();
  kit.texture = gl && gl.createTexture();
  let waiting = 0, left = images.length;
  const send = () => {
    clearTimeout(waiting);
    waiting = 0;
    stale = true;
    redraw();
    if (flat) return;
    gl.bindTexture(gl.TEXTURE_2D, kit.texture);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGB, gl.RGB, gl.UNSIGNED_BYTE, sheet);
    gl.generateMipmap(gl.TEXTURE_2D);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.LINEAR_MIPMAP_LINEAR);
    for (const side of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, side, gl.CLAMP_TO_EDGE);
  };
  images.forEach((image, k) => {
    const x = (k % along) * tile, y = Math.floor(k / along) * tile;
    const copy = new Image();
    copy.onload = () => {
      if (flat) kit.copies.set(image, images.length > CROWD ? shrunk(copy, 48) : copy);
      else context.drawImage(copy, x, y, tile, tile);
      kit.tiles.set(image, [x + 1, y + 1, x + tile - 1, y + tile - 1].map((value) => value / ATLAS));
      if (--left === 0) send();
      else waiting ||= setTimeout(send, 1000);
    };
    copy.src = photos[image].src;
  });
}

const frustumScale = () => Math.pow(10, (frusta.value - 50) / 50) * current().depth;
// Corners of a camera's photograph in space.
function corners(camera, scale) {
  const [u, v] = camera.half, depth = Math.min((1.1 * scale) / Math.hypot(u, v), 1.6 * scale);
  return [[-1, -1], [1, -1], [1, 1], [-1, 1]].map(([a, b]) =>
    [0, 1, 2].map((k) => camera.centre[k] + depth * (camera.axes[2][k] + a * u * camera.axes[0][k] + b * v * camera.axes[1][k])));
}
// Image by image how it is drawn: colour, width of lines, size, and opacity of the photograph.
function looks() {
  const mates = new Map();
  if (state.pair !== null) for (const image of [pairs.first[state.pair], pairs.second[state.pair]]) mates.set(image, SELECTED);
  else if (state.image !== null) for (const p of pairsOf[state.image]) if (pairs.accepted[p]) mates.set(other(p, state.image), shade(pairs.probability[p]));
  const chosen = state.image !== null || state.pair !== null;
  return (image) => {
    // Who looks through a camera sees its photograph before the points, and no other in the way.
    if (image === state.image) return [SELECTED, 2.6, through ? 1 : 1.7, through ? 0.6 : 1];
    if (through) return [PLAIN, 1, 1, 0];
    if (image === state.over) return [WHITE, 2.4, 1.25, 1];
    if (mates.has(image)) return [mates.get(image), 1.8, 1, 1];
    return chosen ? [PLAIN, 1, 1, 0.16] : [PLAIN, 1.2, 1, 1];
  };
}
function sendLines(lines) {
  const floats = new Float32Array(lines.length * 4 * LINE_FLOATS), bytes = new Uint8Array(floats.buffer);
  let at = 0;
  for (const [a, b, colour, opacity, width, dash] of lines)
    for (const [end, side] of [[0, -1], [0, 1], [1, 1], [1, -1]]) {
      floats.set(a, at);
      floats.set(b, at + 3);
      floats.set([end, side, width, dash], at + 6);
      bytes.set([...colour, Math.round(255 * opacity)], 4 * (at + 10));
      at += LINE_FLOATS;
    }
  upload("lines", floats, lines.length * 6);
  const corner = [0, 1, 2, 0, 2, 3], indices = new Uint32Array(lines.length * 6).map((_, k) => 4 * Math.floor(k / 6) + corner[k % 6]);
  gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, kit.buffers.indices);
  gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, indices, gl.STATIC_DRAW);
}
function buildCameras() {
  const model = current(), scale = frustumScale(), look = looks(), quads = [], lines = [];
  // Lines of many cameras cover each other, and take long to draw.
  const faint = clamp(Math.sqrt(150 / model.cameras.length), 0.35, 1), crowd = model.cameras.length > CROWD;
  const line = (a, b, colour, opacity, width, dash = 0) => lines.push([a, b, colour, opacity, width, dash]);
  for (const camera of model.cameras) {
    const [colour, width, larger, opacity] = look(camera.image);
    const four = (camera.corners = corners(camera, scale * larger));
    const tile = photosOn.checked && kit.tiles.get(camera.image);
    camera.opacity = tile ? opacity : 0;
    if (tile && opacity) {
      const [x0, y0, x1, y1] = tile, at = [[x0, y0], [x1, y0], [x1, y1], [x0, y1]];
      for (const k of [0, 1, 2, 0, 2, 3]) quads.push(...four[k], ...at[k], opacity);
    }
    const alpha = (opacity < 0.5 ? 0.3 : 0.95) * (colour === PLAIN ? faint : 1);
    four.forEach((corner, k) => {
      line(camera.centre, corner, colour, alpha, width);
      if (!crowd || !tile || colour !== PLAIN) line(corner, four[(k + 1) % 4], colour, alpha, width);
    });
  }
  const link = (p, opacity, width) => {
    const ends = [pairs.first[p], pairs.second[p]].map((image) => model.cameraOf.get(image));
    if (ends.some((end) => end === undefined)) return;
    const [a, b] = ends.map((end) => model.cameras[end].centre);
    line(a, b, shade(pairs.probability[p]), opacity, width, pairs.accepted[p] ? 0 : 9);
  };
  if (linksOn.checked) for (let p = 0; p < pairs.first.length; p++) if (pairs.accepted[p]) link(p, 0.35, 1);
  if (state.image !== null && state.pair === null && !through) for (const p of pairsOf[state.image]) if (pairs.accepted[p]) link(p, 0.85, 1.6);
  for (const p of [state.pair, state.overPair]) if (p !== null) link(p, 1, 3.4);
  upload("quads", new Float32Array(quads), quads.length / 6);
  kit.lines = lines;
  if (gl) sendLines(lines);
  const sees = state.image === null ? undefined : model.cameraOf.get(state.image);
  const places = sees === undefined ? [] : model.seen.subarray(model.seenStart[sees], model.seenStart[sees + 1]);
  const seen = new Float32Array(3 * places.length);
  places.forEach((place, k) => seen.set(model.points.subarray(3 * place, 3 * place + 3), 3 * k));
  upload("seen", (kit.seen = seen), places.length);
  stale = false;
}

// Draw points as squares into an array of colours; the nearest are on top.
function plotPoints(M, extent, least, most, clear, tint) {
  const model = current(), width = view.width, height = view.height;
  if (!kit.picture || kit.picture.width !== width || kit.picture.height !== height) {
    kit.picture = flat.createImageData(width, height);
    kit.far = new Float32Array(width * height);
  }
  const shades = new Uint32Array(kit.picture.data.buffer), far = kit.far, key = `${state.model} ${tint} ${clear}`;
  if (kit.key !== key) {
    kit.key = key;
    kit.mixed = model.colors.map((value, k) => (k % 4 === 3 ? 255 : value + (255 * clear[k % 4] - value) * tint));
  }
  const packed = (rgb) => new Uint32Array(new Uint8Array([...rgb, 255]).buffer);
  const [a, b, c, d, e, f, g, h, i, j, k, l] = [0, 4, 8, 12, 1, 5, 9, 13, 3, 7, 11, 15].map((at) => M[at]);
  const plot = (points, colours, larger) => {
    for (let n = 0, at = 0; at < points.length; n++, at += 3) {
      const x = points[at], y = points[at + 1], z = points[at + 2], w = i * x + j * y + k * z + l;
      if (w < NEAR) continue;
      const side = Math.min(Math.max((larger * extent) / w, larger * least), most) + 0.5 | 0;
      const left = ((a * x + b * y + c * z + d) / w + 1) * 0.5 * width - 0.5 * side + 0.5 | 0;
      const top = (1 - (e * x + f * y + g * z + h) / w) * 0.5 * height - 0.5 * side + 0.5 | 0;
      if (left < 0 || top < 0 || left + side > width || top + side > height) continue;
      const colour = colours[n % colours.length];
      for (let row = top * width + left, end = row + side * width; row < end; row += width)
        for (let pixel = row; pixel < row + side; pixel++) if (w < far[pixel]) { far[pixel] = w; shades[pixel] = colour; }
    }
  };
  far.fill(Infinity);
  shades.fill(packed(clear.map((value) => 255 * value))[0]);
  plot(model.points, new Uint32Array(kit.mixed.buffer), 1);
  plot(kit.seen, packed(SELECTED), LARGER);
  flat.putImageData(kit.picture, 0, 0);
}
// Photographs, each as a parallelogram, and lines over the points.
function paintCameras(M) {
  const away = (camera) => project(M, camera.centre)[2], { cameras } = current();
  // While a finger moves them, many photographs are left out, as they take too long.
  const shown = cameras.length > CROWD && fingers.size ? [] : cameras;
  for (const [camera] of shown.map((camera) => [camera, away(camera)]).sort((a, b) => b[1] - a[1])) {
    const copy = camera.opacity && kit.copies.get(camera.image);
    if (!copy) continue;
    const [a, b, , d] = camera.corners.map((corner) => project(M, corner)), [w, h] = [copy.width, copy.height];
    if (Math.min(a[2], b[2], d[2]) < NEAR) continue;
    flat.setTransform((b[0] - a[0]) / w, (b[1] - a[1]) / w, (d[0] - a[0]) / h, (d[1] - a[1]) / h, a[0], a[1]);
    flat.globalAlpha = camera.opacity;
    flat.drawImage(copy, 0, 0);
  }
  flat.setTransform(1, 0, 0, 1, 0, 0);
  let last = null;
  for (const [a, b, colour, opacity, width, dash] of kit.lines) {
    const from = project(M, a), to = project(M, b), style = `${colour} ${opacity} ${width} ${dash}`;
    if (style !== last) {
      if (last) flat.stroke();
      flat.beginPath();
      flat.globalAlpha = opacity;
      flat.strokeStyle = css(colour);
      flat.lineWidth = width;
      flat.setLineDash(dash ? [0.55 * dash, 0.45 * dash] : []);
    }
    last = style;
    if (Math.min(from[2], to[2]) < NEAR) continue;
    flat.moveTo(from[0], from[1]);
    flat.lineTo(to[0], to[1]);
  }
  flat.stroke();
  flat.globalAlpha = 1;
}

function render() {
  queued = false;
  if (!kit || !models.length) return;
  if (stale) buildCameras();
  const M = matrix(), sharp = view.height / size.height;
  const clear = getComputedStyle(space).backgroundColor.match(/\d+/g).slice(0, 3).map((value) => value / 255);
  // Few points are drawn larger than many.
  const fewer = clamp(Math.pow(60000 / Math.max(kit.counts.points, 1), 0.35), 1, 2.2);
  const extent = ((through ? 0.0006 : 0.0019) * fewer * Math.pow(12, dots.value / 50 - 1) * view.height) / pose.lens;
  const least = sharp * Math.min(fewer, through ? 1 : 1.6), most = 14 * sharp, tint = state.image === null ? 0 : 0.62;
  placeLabel(M);
  if (flat) {
    plotPoints(M, extent, least, most, clear, tint);
    paintCameras(M);
    return;
  }
  const F = gl.FLOAT;
  gl.viewport(0, 0, view.width, view.height);
  gl.clearColor(clear[0], clear[1], clear[2], 1);
  gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
  const use = (name) => {
    const program = kit.programs[name];
    gl.useProgram(program.program);
    gl.uniformMatrix4fv(program.uniforms.M, false, M);
    return program;
  };
  gl.disable(gl.BLEND);
  let program = use("point");
  const points = (name, rgb, share, larger) => {
    gl.uniform3f(program.uniforms.size, extent * larger, least * larger, most);
    gl.uniform4f(program.uniforms.tint, rgb[0], rgb[1], rgb[2], share);
    bind(program, name, [["place", 3, F, 0]], 12);
    gl.drawArrays(gl.POINTS, 0, kit.counts[name]);
  };
  bind(program, "colors", [["colour", 4, gl.UNSIGNED_BYTE, 0]], 4);
  points("points", clear, tint, 1);
  gl.disableVertexAttribArray(program.places.colour);
  if (kit.counts.seen) points("seen", SELECTED.map((value) => value / 255), 1, LARGER);
  gl.enable(gl.BLEND);
  if (kit.counts.quads) {
    program = use("photo");
    gl.bindTexture(gl.TEXTURE_2D, kit.texture);
    bind(program, "quads", [["place", 3, F, 0], ["tile", 3, F, 12]], 24);
    gl.drawArrays(gl.TRIANGLES, 0, kit.counts.quads);
  }
  program = use("line");
  gl.uniform3f(program.uniforms.screen, view.width / 2, view.height / 2, sharp);
  bind(program, "lines", [["start", 3, F, 0], ["stop", 3, F, 12], ["how", 4, F, 24], ["colour", 4, gl.UNSIGNED_BYTE, 40]], 4 * LINE_FLOATS);
  gl.depthMask(false);
  gl.drawElements(gl.TRIANGLES, kit.counts.lines, gl.UNSIGNED_INT, 0);
  gl.depthMask(true);
}
function redraw(changed = false) {
  stale ||= changed;
  if (queued || !kit) return;
  queued = true;
  requestAnimationFrame(render);
}
function placeLabel(M) {
  const image = state.over ?? state.image, place = current().cameraOf.get(image);
  label.hidden = place === undefined || through;
  if (label.hidden) return;
  const [x, y, w] = project(M, current().cameras[place].centre);
  label.hidden = w <= 0 || x < 0 || y < 0 || x > size.width || y > size.height;
  label.textContent = names[image];
  label.style.transform = `translate(${x}px, ${y}px) translate(-50%, 12px)`;
}
function resizeView() {
  const box = space.getBoundingClientRect(), sharp = flat ? 1 : Math.min(devicePixelRatio || 1, MOST_SHARP);
  const first = size.width === 1;
  size = { width: Math.max(box.width, 1), height: Math.max(box.height, 1) };
  view.width = Math.round(size.width * sharp);
  view.height = Math.round(size.height * sharp);
  if (first) pose = home();
  // At once: a canvas that was resized is blank.
  render();
}

let flight = 0;
function fly(to) {
  const from = { ...pose }, begin = performance.now(), duration = still.matches ? 0 : 500;
  const turn = ((((to.yaw - from.yaw) % (2 * Math.PI)) + 3 * Math.PI) % (2 * Math.PI)) - Math.PI;
  cancelAnimationFrame(flight);
  const step = (now) => {
    const part = duration ? clamp((now - begin) / duration, 0, 1) : 1, s = part * part * (3 - 2 * part);
    for (const key of ["x", "y", "z", "pitch", "roll", "lens"]) pose[key] = from[key] + (to[key] - from[key]) * s;
    pose.yaw = from.yaw + turn * s;
    pose.dist = from.dist * Math.pow(to.dist / from.dist, s);
    redraw();
    if (part < 1) flight = requestAnimationFrame(step);
  };
  step(begin);
}
const land = () => cancelAnimationFrame(flight);
function turnView(dx, dy) {
  land();
  pose.yaw -= dx;
  pose.pitch = clamp(pose.pitch + dy, -1.56, 1.56);
  redraw();
}
// Moves what is seen by pixels.
function panView(dx, dy) {
  land();
  const { right, up } = axes(), unit = (2 * pose.dist * pose.lens) / size.height;
  ["x", "y", "z"].forEach((key, k) => { pose[key] -= (right[k] * dx - up[k] * dy) * unit; });
  redraw();
}
// What is at a place of the canvas, at the distance about which the view turns, stays there.
function zoomView(factor, x = size.width / 2, y = size.height / 2) {
  const part = clamp(pose.dist * factor, 0.01, 80) / pose.dist;
  const [dx, dy] = [x - size.width / 2, y - size.height / 2].map((value) => value * (1 - part));
  panView(-dx, -dy);
  pose.dist *= part;
}
function resetView() {
  leaveCamera();
  if (kit) fly(home());
}
function leaveCamera() {
  if (!through) return;
  enter(false);
  pose.roll = 0;
  redraw(true);
}
function enter(on) {
  through = on;
  byId("through").textContent = on ? "Back to the whole model" : "Look through this camera";
}
function lookThrough() {
  if (through) return resetView();
  const model = current(), place = model.cameraOf.get(state.image);
  if (place === undefined) return;
  const camera = model.cameras[place], ahead = camera.axes[2];
  const depths = [...model.seen.subarray(model.seenStart[place], model.seenStart[place + 1])]
    .map((point) => dot([0, 1, 2].map((k) => model.points[3 * point + k] - camera.centre[k]), ahead)).sort((a, b) => a - b);
  const dist = depths.length ? Math.max(depths[depths.length >> 1], 0.05) : 1;
  const [x, y, z] = [0, 1, 2].map((k) => camera.centre[k] + dist * ahead[k]);
  const lens = 1.2 * Math.max(camera.half[1], (camera.half[0] * size.height) / size.width);
  enter(true);
  stale = true;
  const to = { x, y, z, dist, lens, roll: 0, yaw: Math.atan2(-ahead[0], ahead[1]), pitch: Math.asin(clamp(-ahead[2], -1, 1)) };
  const { right, up } = axes(to), down = camera.axes[1];
  fly({ ...to, roll: Math.atan2(dot(down, right), -dot(down, up)) });
}

// The camera at a place of the canvas: the nearest whose photograph is there, or whose centre is close.
function cameraAt(x, y, reach = REACH_PX) {
  const M = matrix();
  let best = null, least = Infinity;
  for (const camera of current().cameras) {
    const centre = project(M, camera.centre);
    if (centre[2] <= 0 || !camera.corners) continue;
    const four = camera.corners.map((corner) => project(M, corner));
    const sides = four.map(([a, b], k) => {
      const [c, d] = four[(k + 1) % 4];
      return (c - a) * (y - b) - (d - b) * (x - a);
    });
    const covers = four.every((corner) => corner[2] > 0) && (sides.every((side) => side > 0) || sides.every((side) => side < 0));
    const away = Math.hypot(centre[0] - x, centre[1] - y);
    // A photograph is a better hit than a centre nearby, and the front one better than others.
    const cost = covers ? centre[2] : away < reach ? 1e3 + away : Infinity;
    if (cost < least) [best, least] = [camera.image, cost];
  }
  return best;
}
function pointAt(x, y) {
  const M = matrix(), { points } = opened(current());
  let best = null, least = Infinity;
  for (let k = 0; k < points.length; k += 3) {
    const [a, b, w] = project(M, points.subarray(k, k + 3)), away = Math.hypot(a - x, b - y);
    if (w > 0 && away < 12 && w + 0.02 * away < least) [best, least] = [points.subarray(k, k + 3), w + 0.02 * away];
  }
  return best;
}

const fingers = new Map();
let moved = 0, lastClick = { time: -Infinity }, lastScroll = -Infinity;
addEventListener("scroll", () => { lastScroll = performance.now(); }, { passive: true });
// Who scrolls the page over a canvas goes on scrolling it.
const scrolls = () => performance.now() - lastScroll < WHEEL_MS;
const spot = (event, node) => {
  const box = node.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};
view.addEventListener("pointerdown", (event) => {
  view.setPointerCapture(event.pointerId);
  fingers.set(event.pointerId, spot(event, view));
  if (fingers.size === 1) moved = 0;
  space.classList.add("dragging");
});
view.addEventListener("pointermove", (event) => {
  const [x, y] = spot(event, view), before = fingers.get(event.pointerId);
  if (!before) {
    const over = event.pointerType === "touch" ? null : cameraAt(x, y, 12);
    if (over === state.over) return;
    state.over = over;
    space.classList.toggle("hit", over !== null);
    redraw(true);
    return;
  }
  const [dx, dy] = [x - before[0], y - before[1]];
  moved += Math.hypot(dx, dy);
  if (fingers.size === 1 && moved > DRAG_PX) {
    leaveCamera();
    if (event.shiftKey || event.buttons & 6) panView(dx, dy);
    else turnView((dx / size.height) * 3.2, (dy / size.height) * 3.2);
  } else if (fingers.size === 2) {
    const far = [...fingers].find(([id]) => id !== event.pointerId)[1];
    const [was, is] = [before, [x, y]].map(([a, b]) => Math.max(Math.hypot(a - far[0], b - far[1]), 1));
    leaveCamera();
    panView(dx / 2, dy / 2);
    zoomView(was / is, (x + far[0]) / 2, (y + far[1]) / 2);
  }
  fingers.set(event.pointerId, [x, y]);
});
view.addEventListener("pointerup", (event) => {
  const [x, y] = spot(event, view);
  if (fingers.size !== 1 || moved > DRAG_PX || event.button !== 0) return;
  const now = performance.now(), hit = cameraAt(x, y);
  if (hit === null && now - lastClick.time < DOUBLE_MS && Math.hypot(x - lastClick.x, y - lastClick.y) < REACH_PX) {
    const point = pointAt(x, y);
    if (point) fly({ ...pose, x: point[0], y: point[1], z: point[2], dist: pose.dist * 0.6 });
  } else if (hit !== null) chooseImage(hit);
  else chooseImage(null);
  lastClick = { time: now, x, y };
});
for (const name of ["pointerup", "pointercancel", "lostpointercapture"])
  view.addEventListener(name, (event) => {
    fingers.delete(event.pointerId);
    redraw();
    space.classList.toggle("dragging", fingers.size > 0);
  });
view.addEventListener("pointerleave", () => {
  if (state.over === null) return;
  state.over = null;
  redraw(true);
});
view.addEventListener("contextmenu", (event) => event.preventDefault());
view.addEventListener("wheel", (event) => {
  if (scrolls()) return;
  event.preventDefault();
  leaveCamera();
  zoomView(Math.exp(clamp(event.deltaY * (event.deltaMode ? 30 : 1), -120, 120) * 0.0018), ...spot(event, view));
}, { passive: false });
view.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (step) leaveCamera();
  if (step && event.shiftKey) panView(-40 * step[0], -40 * step[1]);
  else if (step) turnView(0.09 * step[0], -0.09 * step[1]);
  else if (event.key === "+" || event.key === "=") zoomView(1 / ZOOM_STEP);
  else if (event.key === "-") zoomView(ZOOM_STEP);
  else if (event.key === "0" || event.key === "r") resetView();
  else return;
  event.preventDefault();
});
byId("in").addEventListener("click", () => zoomView(1 / ZOOM_STEP));
byId("out").addEventListener("click", () => zoomView(ZOOM_STEP));
byId("reset").addEventListener("click", resetView);
byId("through").addEventListener("click", lookThrough);
dots.addEventListener("input", () => redraw());
for (const input of [frusta, photosOn, linksOn]) input.addEventListener("input", () => redraw(true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { redraw(); drawMatrix(); });

function showModel(k) {
  state.model = k;
  const input = document.querySelector(`input[name=model][value="${k}"]`);
  if (input) input.checked = true;
  if (!kit) return;
  const model = opened(current());
  upload("points", model.points, model.points.length / 3);
  upload("colors", model.colors, model.colors.length / 4);
  redraw(true);
}
for (const input of document.querySelectorAll("input[name=model]"))
  input.addEventListener("change", () => {
    state.image = state.pair = null;
    showModel(Number(input.value));
    resetView();
    chooseImage(null);
  });

// ------------------------------------------------------------------------------- inspector
const inspector = byId("inspector"), tabs = ["matrix", "image", "pair"];
function showPane(name) {
  for (const tab of tabs) {
    const node = byId(`tab-${tab}`), is = tab === name;
    node.setAttribute("aria-selected", is);
    node.tabIndex = is ? 0 : -1;
    byId(`pane-${tab}`).hidden = !is;
  }
  if (name === "matrix") resizeMatrix();
  if (name === "pair") drawPair();
}
tabs.forEach((name, k) => {
  const node = byId(`tab-${name}`);
  node.addEventListener("click", () => showPane(name));
  node.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: 2, ArrowRight: 1 }[event.key];
    if (!step) return;
    const next = tabs[(k + step) % 3];
    showPane(next);
    byId(`tab-${next}`).focus();
    event.preventDefault();
  });
});
function enlarge(on) {
  inspector.classList.toggle("large", on);
  byId("larger").setAttribute("aria-pressed", on);
  byId("larger").textContent = on ? "Smaller" : "Larger";
}
byId("larger").addEventListener("click", () => enlarge(!inspector.classList.contains("large")));
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (inspector.classList.contains("large")) enlarge(false);
  else chooseImage(null);
});

function picture(image, className) {
  if (!photos[image]) return element("i", className);
  const node = element("img", className);
  node.src = photos[image].src;
  node.alt = "";
  return node;
}
function mark(p) {
  const node = element("i", pairs.accepted[p] ? "mark" : "mark refused");
  node.style.setProperty("--shade", css(shade(pairs.probability[p])));
  return node;
}
// One line of a list of pairs, seen from one image or from neither.
function pairRow(p, image) {
  const ends = image === undefined ? [pairs.first[p], pairs.second[p]] : [other(p, image)];
  const text = element("span", "who", element("b", "", ends.map((end) => names[end]).join(" ↔ ")), element("small", "", `${pairs.accepted[p] ? "accepted" : "refused"}, ${counted(pairs.matches[p], "match", "matches")}, probability ${probabilityText(p)}`));
  const row = button("pair-row", () => choosePair(p), mark(p), ...ends.map((end) => picture(end, "tiny")), text);
  row.title = reasonOf(p);
  const point = (at) => () => {
    state.overPair = at;
    redraw(true);
  };
  row.addEventListener("pointerenter", point(p));
  row.addEventListener("pointerleave", point(null));
  return element("li", "", row);
}
const MOST_ROWS = 150;
function pairList(list, image) {
  const node = element("ol", "pair-list", ...list.slice(0, MOST_ROWS).map((p) => pairRow(p, image)));
  if (list.length > MOST_ROWS) node.append(element("li", "quiet", `and ${thousands(list.length - MOST_ROWS)} more, in the matrix`));
  return node;
}
function fillImage() {
  const pane = byId("pane-image"), image = state.image;
  if (image === null) {
    pane.replaceChildren(element("p", "quiet", "Click a camera in the model, or an image below."));
    return;
  }
  const list = pairsOf[image].slice().sort(acceptedFirst), accepted = list.filter((p) => pairs.accepted[p]).length;
  const home = homeOf[image], model = models[state.model], place = models.length ? model.cameraOf.get(image) : undefined;
  const where = home < 0 ? "In no model" : models.length > 1 ? `In model ${place === undefined ? home : state.model}` : "In the model";
  const sees = place === undefined || !model.seenStart ? 0 : model.seenStart[place + 1] - model.seenStart[place];
  const [width, height] = data.sizes[image];
  const said = `${where}. ${width} × ${height} pixels. ${sees ? `Sees ${counted(sees, "point")}. ` : ""}${counted(accepted, "pair")} accepted, ${thousands(list.length - accepted)} refused.`;
  pane.replaceChildren(picture(image, "photo"), element("h3", "", names[image]), element("p", "quiet", said), pairList(list, image));
  pane.scrollTop = 0;
}

// Both photographs of a pair with its lines, side by side or below one another.
const pairCanvas = element("canvas", "pair-canvas");
let pairPictures = [];
function fillPair() {
  const pane = byId("pane-pair"), p = state.pair;
  if (p === null) {
    pane.replaceChildren(element("p", "quiet", "Click a cell of the matrix, or a pair in a list."));
    return;
  }
  const ends = [pairs.first[p], pairs.second[p]];
  const facts = element("dl", "");
  const shown = pairs.linesOf[p];
  for (const [name, value] of [["Probability of being true", probabilityText(p)], ["Verdict of the matching", verdictOf(p)], ["Matches", thousands(pairs.matches[p]) + (shown && shown < pairs.matches[p] ? `, ${shown} drawn` : "")]])
    facts.append(element("dt", "", name), element("dd", "", value));
  const who = element("p", "ends", ...ends.map((end) => button("plain", () => chooseImage(end), names[end])));
  pairCanvas.setAttribute("role", "img");
  pairCanvas.setAttribute("aria-label", `Matches of ${names[ends[0]]} and ${names[ends[1]]}`);
  const pill = element("span", `pill ${pairs.accepted[p] ? "good" : "bad"}`, pairs.accepted[p] ? "Accepted" : "Refused");
  pane.replaceChildren(pairCanvas, who, element("p", "pills", pill), element("p", "why", reasonOf(p)), facts);
  pane.scrollTop = 0;
  pairPictures = ends.map((end) => {
    if (!photos[end]) return null;
    const copy = new Image();
    copy.onload = drawPair;
    copy.src = photos[end].src;
    return copy;
  });
  drawPair();
}
function drawPair() {
  const pane = byId("pane-pair"), p = state.pair;
  if (p === null || pane.hidden) return;
  const sizes = [pairs.first[p], pairs.second[p]].map((image) => data.sizes[image]), gap = 6;
  const room = [pane.clientWidth, Math.max(0.66 * pane.clientHeight, 220)];
  // One photograph has width 1 of its own; both have the same height beside, the same width below one another.
  const [a, b] = sizes.map(([w, h]) => w / h);
  const tall = Math.min((room[0] - gap) / (a + b), room[1]), wide = Math.min(room[0], (room[1] - gap) / (1 / a + 1 / b));
  const beside = tall * tall * (a + b) >= wide * wide * (1 / a + 1 / b);
  const boxes = beside
    ? [{ x: 0, y: 0, w: tall * a, h: tall }, { x: tall * a + gap, y: 0, w: tall * b, h: tall }]
    : [{ x: 0, y: 0, w: wide, h: wide / a }, { x: 0, y: wide / a + gap, w: wide, h: wide / b }];
  const end = boxes[1], sharp = devicePixelRatio || 1, total = [end.x + end.w, end.y + end.h];
  [pairCanvas.width, pairCanvas.height] = total.map((value) => Math.max(1, Math.round(value * sharp)));
  [pairCanvas.style.width, pairCanvas.style.height] = total.map((value) => `${value}px`);
  const context = pairCanvas.getContext("2d");
  context.setTransform(sharp, 0, 0, sharp, 0, 0);
  boxes.forEach((box, k) => {
    context.fillStyle = "#2a313d";
    context.fillRect(box.x, box.y, box.w, box.h);
    const copy = pairPictures[k];
    if (copy && copy.complete && copy.naturalWidth) context.drawImage(copy, box.x, box.y, box.w, box.h);
  });
  const lines = [];
  for (let k = lineStart[p]; k < lineStart[p + 1]; k++) lines.push([...pairs.lines.subarray(4 * k, 4 * k + 4)].map((value) => value / 65535));
  // Coloured from left to right in the first image, so that lines can be told from their neighbours.
  lines.sort((c, d) => c[0] - d[0]).forEach(([x0, y0, x1, y1], k) => {
    const from = [boxes[0].x + x0 * boxes[0].w, boxes[0].y + y0 * boxes[0].h], to = [end.x + x1 * end.w, end.y + y1 * end.h];
    context.strokeStyle = context.fillStyle = `hsl(${Math.round(45 + (265 * k) / lines.length)} 95% 67%)`;
    context.globalAlpha = 0.75;
    context.lineWidth = 1.2;
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(...to);
    context.stroke();
    context.globalAlpha = 1;
    for (const place of [from, to]) {
      context.beginPath();
      context.arc(...place, 2.4, 0, 7);
      context.fill();
    }
  });
}

function markShots() {
  const mates = state.pair === null ? [] : [pairs.first[state.pair], pairs.second[state.pair]];
  shots.forEach((shot, image) => {
    shot.setAttribute("aria-pressed", image === state.image);
    shot.classList.toggle("mate", mates.includes(image));
  });
  const strip = byId("strip"), shot = shots[state.image ?? mates[0]];
  if (!shot) return;
  const [box, frame] = [shot.getBoundingClientRect(), strip.getBoundingClientRect()];
  if (box.left < frame.left || box.right > frame.right) strip.scrollLeft += box.left - frame.left - (frame.width - box.width) / 2;
}
function chooseImage(image) {
  state.image = image;
  state.pair = state.overPair = state.over = null;
  enter(false);
  if (image !== null && homeOf[image] >= 0 && !current().cameraOf.has(image)) {
    showModel(homeOf[image]);
    fly(home());
  }
  byId("through").hidden = image === null || !kit || !models.length || !current().cameraOf.has(image);
  fillImage();
  fillPair();
  if (image !== null) showPane("image");
  else if (byId("pane-matrix").hidden) showPane("matrix");
  markShots();
  drawMatrix();
  redraw(true);
}
function choosePair(p) {
  const ends = [pairs.first[p], pairs.second[p]];
  if (!ends.includes(state.image)) state.image = null;
  state.pair = p;
  state.overPair = null;
  const shared = models.findIndex((model) => ends.every((end) => model.cameraOf.has(end)));
  if (shared >= 0 && !ends.every((end) => current().cameraOf.has(end))) {
    showModel(shared);
    fly(home());
  }
  fillPair();
  showPane("pair");
  markShots();
  drawMatrix();
  redraw(true);
}
shots.forEach((shot, image) => {
  shot.addEventListener("click", () => chooseImage(image));
  shot.addEventListener("focus", () => { if (shot.matches(":focus-visible") && state.image !== image) chooseImage(image); });
  shot.addEventListener("pointerenter", () => { state.over = image; redraw(true); });
  shot.addEventListener("pointerleave", () => { state.over = null; redraw(true); });
});

// ------------------------------------------------------------------------------- the matrix
// Images of one model are together; accepted pairs are above the diagonal, refused ones below it.
const grid = byId("matrix"), square = byId("square"), told = byId("told"), hint = told.textContent;
const number = names.length;
const order = names.map((_, image) => image).sort((a, b) => (homeOf[a] >>> 0) - (homeOf[b] >>> 0) || a - b);
const rowOf = [];
order.forEach((image, row) => { rowOf[image] = row; });
const cellOf = (p) => {
  const [low, high] = [rowOf[pairs.first[p]], rowOf[pairs.second[p]]].sort((a, b) => a - b);
  return pairs.accepted[p] ? [low, high] : [high, low];
};
const pairAt = new Map();
const cells = element("canvas");
cells.width = cells.height = Math.max(number, 1);
{
  const context = cells.getContext("2d"), pixels = context.createImageData(cells.width, cells.height);
  for (let p = 0; p < pairs.first.length; p++) {
    const [row, column] = cellOf(p);
    pairAt.set(row * number + column, p);
    pixels.data.set([...shade(pairs.probability[p]), 255], 4 * (row * number + column));
  }
  context.putImageData(pixels, 0, 0);
}
let frame = { k: 1, x: 0, y: 0 }, cursor = null; // the share u of the matrix is drawn at x + k u
function resizeMatrix() {
  const box = square.getBoundingClientRect(), sharp = devicePixelRatio || 1;
  if (!box.width) return;
  grid.width = grid.height = Math.round(box.width * sharp);
  drawMatrix();
}
function drawMatrix() {
  if (byId("pane-matrix").hidden || !number) return;
  const context = grid.getContext("2d"), style = getComputedStyle(square), colour = (name) => style.getPropertyValue(name).trim();
  const side = grid.width, { k, x, y } = frame, cell = (side * k) / number, sharp = devicePixelRatio || 1;
  const left = (column) => x * side + column * cell, top = (row) => y * side + row * cell;
  context.fillStyle = colour("--track");
  context.fillRect(0, 0, side, side);
  const band = state.image === null ? null : rowOf[state.image];
  if (band !== null) {
    context.fillStyle = colour("--soft");
    context.fillRect(0, top(band), side, Math.max(cell, 1));
    context.fillRect(left(band), 0, Math.max(cell, 1), side);
  }
  context.imageSmoothingEnabled = false;
  // Small cells are drawn larger than they are, so that single ones are seen.
  const least = 2 * sharp, few = pairs.first.length <= 60000;
  if (cell >= least || !few) context.drawImage(cells, left(0), top(0), side * k, side * k);
  else
    for (let p = 0; p < pairs.first.length; p++) {
      const [row, column] = cellOf(p);
      context.fillStyle = css(shade(pairs.probability[p]));
      context.fillRect(left(column) + (cell - least) / 2, top(row) + (cell - least) / 2, least, least);
    }
  const seen = (start) => [Math.max(0, Math.floor((-start * side) / cell)), Math.min(number, Math.ceil((side - start * side) / cell))];
  const [rows, columns] = [seen(y), seen(x)];
  context.fillStyle = colour("--quiet");
  for (let d = Math.max(rows[0], columns[0]); d < Math.min(rows[1], columns[1]); d++) context.fillRect(left(d), top(d), Math.max(cell, 1), Math.max(cell, 1));
  if (cell >= 6 * sharp) {
    context.strokeStyle = "#0b0f16";
    context.lineWidth = Math.max(1, cell / 14);
    context.beginPath();
    for (let row = rows[0]; row < rows[1]; row++)
      for (let column = columns[0]; column < Math.min(columns[1], row); column++) {
        if (!pairAt.has(row * number + column)) continue;
        const [a, b, c] = [left(column), top(row), cell];
        context.moveTo(a + 0.28 * c, b + 0.28 * c);
        context.lineTo(a + 0.72 * c, b + 0.72 * c);
        context.moveTo(a + 0.72 * c, b + 0.28 * c);
        context.lineTo(a + 0.28 * c, b + 0.72 * c);
      }
    context.stroke();
    context.strokeStyle = colour("--card");
    context.lineWidth = sharp;
    context.beginPath();
    for (let line = columns[0]; line <= columns[1]; line++) { context.moveTo(left(line), 0); context.lineTo(left(line), side); }
    for (let line = rows[0]; line <= rows[1]; line++) { context.moveTo(0, top(line)); context.lineTo(side, top(line)); }
    context.stroke();
  }
  context.strokeStyle = colour("--ink");
  context.lineWidth = 1.5 * sharp;
  for (let row = 1; row < number; row++)
    if (homeOf[order[row]] !== homeOf[order[row - 1]]) {
      context.beginPath();
      context.moveTo(left(row), 0); context.lineTo(left(row), side);
      context.moveTo(0, top(row)); context.lineTo(side, top(row));
      context.stroke();
    }
  const outline = (p, width) => {
    const [row, column] = cellOf(p), edge = Math.max(cell, 5 * sharp), off = (edge - cell) / 2;
    context.lineWidth = width * sharp;
    context.strokeRect(left(column) - off, top(row) - off, edge, edge);
  };
  if (cursor !== null && cursor !== state.pair) outline(cursor, 2);
  if (state.pair !== null) outline(state.pair, 3);
}
// The pair at a place of the matrix, or one nearby where cells are small.
function pairNear(x, y) {
  const side = square.getBoundingClientRect().width, cell = (side * frame.k) / number;
  const [column, row] = [[x, frame.x], [y, frame.y]].map(([at, start]) => (at - start * side) / cell);
  const reach = cell < 6 ? Math.ceil(4 / cell) : 0;
  let best = null, least = Infinity;
  for (let r = Math.floor(row) - reach; r <= Math.floor(row) + reach; r++)
    for (let c = Math.floor(column) - reach; c <= Math.floor(column) + reach; c++) {
      if (r < 0 || c < 0 || r >= number || c >= number) continue;
      const away = Math.hypot(r + 0.5 - row, c + 0.5 - column);
      const p = pairAt.get(r * number + c) ?? pairAt.get(c * number + r);
      if (p !== undefined && away < least) [best, least] = [p, away];
    }
  return best;
}
function point(p) {
  if (p === cursor) return;
  cursor = p;
  told.replaceChildren();
  if (p === null) told.textContent = hint;
  else told.append(mark(p), element("b", "", `${names[pairs.first[p]]} ↔ ${names[pairs.second[p]]}`), `: ${pairs.accepted[p] ? "accepted" : "refused"}, probability ${probabilityText(p)}, ${counted(pairs.matches[p], "match", "matches")}. ${reasonOf(p)}`);
  state.overPair = p;
  redraw(true);
  drawMatrix();
}
let pull = null;
const keep = (k, x, y) => {
  k = clamp(k, 1, Math.max(1, number / 8));
  frame = { k, x: clamp(x, 1 - k, 0), y: clamp(y, 1 - k, 0) };
  drawMatrix();
};
grid.addEventListener("pointerdown", (event) => {
  const [x, y] = spot(event, grid);
  pull = { x, y, moved: 0, from: frame };
  grid.setPointerCapture(event.pointerId);
});
grid.addEventListener("pointermove", (event) => {
  const [x, y] = spot(event, grid), side = square.getBoundingClientRect().width;
  if (pull) {
    pull.moved = Math.max(pull.moved, Math.hypot(x - pull.x, y - pull.y));
    if (pull.moved > DRAG_PX) keep(pull.from.k, pull.from.x + (x - pull.x) / side, pull.from.y + (y - pull.y) / side);
  } else point(pairNear(x, y));
});
grid.addEventListener("pointerup", (event) => {
  const p = pull && pull.moved <= DRAG_PX ? pairNear(...spot(event, grid)) : null;
  pull = null;
  if (p !== null) choosePair(p);
});
grid.addEventListener("pointercancel", () => { pull = null; });
grid.addEventListener("pointerleave", () => point(null));
grid.addEventListener("wheel", (event) => {
  const limit = Math.max(1, number / 8), factor = event.deltaY < 0 ? ZOOM_STEP : 1 / ZOOM_STEP;
  if (scrolls() || limit === 1 || (frame.k === 1 && factor < 1)) return;
  event.preventDefault();
  const side = square.getBoundingClientRect().width, [x, y] = spot(event, grid).map((value) => value / side);
  const part = clamp(frame.k * factor, 1, limit) / frame.k;
  keep(frame.k * part, x - (x - frame.x) * part, y - (y - frame.y) * part);
}, { passive: false });
// Arrow keys go to the next pair in a row or a column.
grid.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (event.key === "Enter" && cursor !== null) choosePair(cursor);
  else if (step && pairs.first.length) {
    const [row, column] = cursor === null ? [0, 0] : cellOf(cursor);
    let next = cursor === null ? 0 : null;
    for (let k = 1; k < number && next === null; k++) next = pairAt.get((row + k * step[0]) * number + column + k * step[1]) ?? null;
    const inside = next !== null && (cursor === null || (step[0] ? cellOf(next)[1] === column : cellOf(next)[0] === row));
    if (inside) point(next);
  } else return;
  event.preventDefault();
});

// ------------------------------------------------------------------------------- the rest
{
  const context = byId("scale").getContext("2d");
  for (let k = 0; k < 256; k++) {
    context.fillStyle = css(shade(k / 255));
    context.fillRect(k, 0, 1, 1);
  }
  const all = [...pairs.first.keys()], lists = [
    ["Refused in spite of many matches", all.filter((p) => !pairs.accepted[p]).sort((a, b) => pairs.matches[b] - pairs.matches[a])],
    ["Accepted with the least certainty", all.filter((p) => pairs.accepted[p] && pairs.probability[p] < 0.9).sort((a, b) => pairs.probability[a] - pairs.probability[b])],
  ];
  for (const [title, list] of lists)
    if (list.length) byId("doubts").append(element("h3", "", title), pairList(list.slice(0, 5)));
  byId("doubts").hidden = lists.every(([, list]) => !list.length);
}
if (models.length && startGraphics()) {
  showModel(0);
  makeAtlas();
  new ResizeObserver(resizeView).observe(space);
  view.addEventListener("webglcontextlost", (event) => event.preventDefault());
  view.addEventListener("webglcontextrestored", () => {
    startGraphics();
    showModel(state.model);
    makeAtlas();
  });
} else {
  kit = null;
  space.parentNode.classList.add("off");
  view.hidden = true;
}
if (!kit) byId("blind").hidden = false;
byId("blind").textContent = !models.length
  ? "There is no model to show. The pairs say what was matched and why it was refused."
  : kit
    ? "WebGL is not available in this browser: the model is drawn more simply."
    : "WebGL is not available in this browser: the model cannot be shown. Images, pairs and numbers are all here.";
new ResizeObserver(() => { resizeMatrix(); drawPair(); }).observe(inspector);
fillImage();
fillPair();
showPane("matrix");
}
