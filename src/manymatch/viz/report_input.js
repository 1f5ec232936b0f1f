// Mouse, finger and keyboard.
function select(next, hold) {
  const same = current && next && current.side === next.side && current.i === next.i;
  if (same && held === Boolean(hold)) return;
  current = next;
  held = Boolean(next && hold);
  drawFocus();
  tellDetail();
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
    tellDetail();
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
tellDetail();
