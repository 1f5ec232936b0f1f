"use strict";
// A report posts its height to this page, which sets the height of its frame and posts back the
// height of the window.
const frames = () => [...document.querySelectorAll("iframe[srcdoc]")];
const ROOM_PX = 24;
window.addEventListener("message", (event) => {
  const frame = frames().find((one) => one.contentWindow === event.source);
  if (!frame || !Number.isFinite(event.data?.manymatch)) return;
  frame.style.height = `${Math.min(Math.max(event.data.manymatch, 200), 20000)}px`;
  frame.dataset.told = event.data.told;
  if (!event.data.told) event.source.postMessage({ manymatch: window.innerHeight - ROOM_PX }, "*");
});
window.addEventListener("resize", () => {
  for (const frame of frames()) frame.contentWindow.postMessage({ manymatch: window.innerHeight - ROOM_PX }, "*");
});
// Shows a result in its frame. Photographs come once; a page of the same photographs is posted to the
// frame that has them.
function showStage(element, value) {
  const old = element.querySelector("iframe");
  if (!value || value.html) { element.innerHTML = value?.html ?? ""; return; }
  if (value.photos) element.photos = value.photos;
  const mark = /src="photo:([01])"/g, number = Number(old?.dataset.pages ?? 0) + 1;
  if (old?.dataset.key === value.key && old.dataset.told === "true") {
    old.dataset.told = false;
    old.contentWindow.postMessage({ page: value.page.replace(mark, "") }, "*");
    old.title = value.title;
    old.dataset.pages = number;
    return;
  }
  const frame = document.createElement("iframe");
  Object.assign(frame.dataset, { key: value.key, pages: number });
  frame.title = value.title;
  frame.sandbox = "allow-scripts";
  frame.style.cssText = "display:block;width:100%;height:720px;border:0";
  frame.srcdoc = value.page.replace(mark, (_, side) => `src="${element.photos[side]}"`);
  element.replaceChildren(frame);
}
