"use strict";
{
// One of four ways to compare two images that lie on each other.
const byId = (id) => document.getElementById(id);
const stage = byId("stage"), images = byId("images"), over = byId("over"), line = byId("line");
const amount = byId("amount"), what = byId("what"), flip = byId("flip");
const MOST_ZOOM = 24, ZOOM_STEP = 1.5, GRIP_PX = 24;
// Meaning of the range in each mode, and its start.
const MODES = { slider: ["Position", 50], blink: ["Speed", 40], blend: ["Share", 50], difference: ["Share", 100] };
const values = Object.fromEntries(Object.entries(MODES).map(([name, [, value]]) => [name, value]));
let mode = "slider", second = true, timer = null;
let view = { x: 0, y: 0, k: 1 }; // the point (u, v) of the images is drawn at (x + k u, y + k v)

const still = matchMedia("(prefers-reduced-motion: reduce)");

function draw() {
  const value = Number(amount.value);
  values[mode] = value;
  const box = stage.getBoundingClientRect();
  images.style.transform = `translate(${view.x * box.width}px, ${view.y * box.height}px) scale(${view.k})`;
  stage.classList.toggle("pan", mode !== "slider" && view.k > 1);
  images.classList.toggle("difference", mode === "difference");
  line.hidden = mode !== "slider";
  // The line stays where it is on the screen while the images move below it.
  const edge = (value / 100 - view.x) / view.k;
  over.style.clipPath = mode === "slider" ? `inset(0 0 0 ${Math.min(Math.max(edge, 0), 1) * 100}%)` : "";
  line.style.left = `${value}%`;
  const shown = mode === "blink" || (mode !== "slider" && !second);
  over.style.opacity = shown ? (second ? 1 : 0) : mode === "slider" ? 1 : value / 100;
  byId("first").classList.toggle("hidden", (mode === "blink" && second) || (mode === "slider" && value < 8));
  byId("second").classList.toggle("hidden", (mode !== "slider" && !second) || (mode === "slider" && value > 92));
  byId("zoom").textContent = `${Math.round(view.k * 100)} %`;
  byId("reset").disabled = view.k === 1;
}

function schedule() {
  clearInterval(timer);
  timer = null;
  if (mode !== "blink" || still.matches) return;
  const period = 2000 * Math.pow(0.05, values.blink / 100); // from two seconds to a tenth of one
  timer = setInterval(() => { second = !second; draw(); }, period);
}

function choose(name) {
  mode = name;
  second = true;
  what.textContent = MODES[name][0];
  amount.value = values[name];
  schedule();
  draw();
}

function zoom(factor, x = 0.5, y = 0.5) {
  const k = Math.min(Math.max(view.k * factor, 1), MOST_ZOOM), part = k / view.k;
  move(x - (x - view.x) * part, y - (y - view.y) * part, k);
}

function move(x, y, k = view.k) {
  const clamp = (value) => Math.min(Math.max(value, 1 - k), 0);
  view = { x: clamp(x), y: clamp(y), k };
  draw();
}

function turn() {
  if (mode === "slider") {
    amount.value = Number(amount.value) > 50 ? 0 : 100;
  } else {
    second = !second;
  }
  draw();
}

const at = (event) => {
  const box = stage.getBoundingClientRect();
  return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height, box];
};

let drag = null;
stage.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  const [x, y, box] = at(event);
  const grips = mode === "slider" && (view.k === 1 || Math.abs(x - amount.value / 100) * box.width < GRIP_PX);
  drag = { grips, x, y, from: view };
  stage.setPointerCapture(event.pointerId);
  if (grips) { amount.value = 100 * x; draw(); }
});
stage.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const [x, y] = at(event);
  if (drag.grips) {
    amount.value = 100 * x;
    draw();
  } else {
    move(drag.from.x + x - drag.x, drag.from.y + y - drag.y);
  }
});
for (const name of ["pointerup", "pointercancel"]) stage.addEventListener(name, () => { drag = null; });
stage.addEventListener("wheel", (event) => {
  event.preventDefault();
  const [x, y] = at(event);
  zoom(Math.pow(ZOOM_STEP, -Math.sign(event.deltaY) * 0.5), x, y);
}, { passive: false });
stage.addEventListener("keydown", (event) => {
  const steps = { ArrowLeft: -2, ArrowRight: 2 };
  if (event.key === " ") turn();
  else if (event.key in steps) { amount.value = Number(amount.value) + steps[event.key]; schedule(); draw(); }
  else if (event.key === "+" || event.key === "=") zoom(ZOOM_STEP);
  else if (event.key === "-") zoom(1 / ZOOM_STEP);
  else if (event.key === "0") move(0, 0, 1);
  else return;
  event.preventDefault();
});
for (const input of document.querySelectorAll("input[name=mode]"))
  input.addEventListener("change", () => choose(input.value));
amount.addEventListener("input", () => { draw(); schedule(); });
flip.addEventListener("click", turn);
byId("in").addEventListener("click", () => zoom(ZOOM_STEP));
byId("out").addEventListener("click", () => zoom(1 / ZOOM_STEP));
byId("reset").addEventListener("click", () => move(0, 0, 1));
addEventListener("resize", draw);
// A frame of the app gets the height of the page, so that the page must not depend on it.
if (window.parent !== window) {
  document.documentElement.style.setProperty("--room", "620px");
  document.body.classList.add("hosted");
  const tell = () => window.parent.postMessage({ manymatch: Math.ceil(document.body.getBoundingClientRect().height), told: true }, "*");
  new ResizeObserver(tell).observe(document.body);
}
choose(document.querySelector("input[name=mode]:checked").value);
}
