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

function tellDetail() {
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
