"use strict";
// A report posts its height to this page, which sets the height of its frame and posts back the
// height of the window that is left below the settings, which stay in view on a wide screen.
const frames = () => [...document.querySelectorAll("iframe[srcdoc]")];
const ROOM_PX = 36, PHONE_PX = 720;
const onPhone = () => window.innerWidth < PHONE_PX;
function room() {
  const settings = onPhone() ? null : document.getElementById("settings");
  return { manymatch: window.innerHeight - ROOM_PX - (settings?.offsetHeight ?? 0) };
}
function showPart(name) { document.getElementById(name)?.scrollIntoView({ behavior: "smooth" }); }
function showBusy(busy) { document.getElementById("match").ariaBusy = busy; }
function showResult() {
  showBusy(false);
  const refused = document.querySelector("#cards [role=alert]");
  showPart(refused ? "cards" : onPhone() ? "stage" : "settings");
}
window.addEventListener("message", (event) => {
  const frame = frames().find((one) => one.contentWindow === event.source);
  if (!frame || !Number.isFinite(event.data?.manymatch)) return;
  frame.style.height = `${Math.min(Math.max(event.data.manymatch, 200), 20000)}px`;
  frame.dataset.told = event.data.told;
  if (!event.data.told) event.source.postMessage(room(), "*");
});
window.addEventListener("resize", () => {
  for (const frame of frames()) frame.contentWindow.postMessage(room(), "*");
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
    old.contentWindow.postMessage({ page: value.page }, "*");
    old.title = value.title;
    old.dataset.pages = number;
    return;
  }
  const frame = document.createElement("iframe");
  Object.assign(frame.dataset, { key: value.key, pages: number });
  frame.title = value.title;
  frame.sandbox = "allow-scripts";
  frame.style.cssText = "display:block;width:100%;height:100vh;border:0";
  frame.srcdoc = value.page.replace(mark, (_, side) => `src="${element.photos[side]}"`);
  element.replaceChildren(frame);
}
