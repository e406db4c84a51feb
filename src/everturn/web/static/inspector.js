// Follows changes of the store, loads earlier entries, and handles keys.
// Without this script links and forms still work.
"use strict";

const live = document.getElementById("live");
const root = document.body.dataset.root || "";

// --- a change in the store: load the part again ------------------------------------------------------------------

async function refresh() {
  const answer = await fetch(live.dataset.part, { redirect: "error" });
  const text = await answer.text();
  if (!answer.ok) {
    location.reload(); // the page itself shows the error
    return;
  }
  const focused = document.activeElement && live.contains(document.activeElement);
  if (focused && document.activeElement.matches("input, select")) {
    notify("This session has changed.", refresh);
    return; // someone is typing
  }
  const fresh = document.createElement("template");
  fresh.innerHTML = text; // from our own server, which escapes it
  const next = fresh.content.getElementById("conversation");
  const conversation = document.getElementById("conversation");
  if (!next || !conversation) {
    live.replaceChildren(fresh.content);
    watchEarlier();
    return;
  }
  // Keep the element of the conversation: its scroll position, loaded entries and open details stay.
  const timeline = live.querySelector(".scroll")?.scrollTop ?? 0;
  bringUpToDate(conversation, next);
  const [top, within] = [scrollY, conversation.scrollTop]; // an element that is removed loses its scroll position
  next.replaceWith(conversation);
  live.replaceChildren(fresh.content);
  conversation.scrollTop = conversation.dataset.follows ? conversation.scrollHeight : within;
  delete conversation.dataset.follows;
  scrollTo({ top, behavior: "instant" });
  const scroll = live.querySelector(".scroll");
  if (scroll) scroll.scrollTop = timeline;
  watchEarlier();
}

// Update the conversation: remove entries that are gone, add new ones, leave the others as they are.
function bringUpToDate(conversation, next) {
  const entries = (of) => [...of.querySelectorAll(".entry[id]")];
  const known = new Map(entries(conversation).map((entry) => [entry.id, entry]));
  const wanted = entries(next);
  const shared = wanted.findIndex((entry) => known.has(entry.id));
  if (conversation.scrollHeight - conversation.scrollTop - conversation.clientHeight < 40) {
    conversation.dataset.follows = "1"; // a reader at the end stays at the end
  }
  if (shared < 0) {
    conversation.replaceChildren(...next.childNodes);
    return;
  }
  const stay = new Set(wanted.map((entry) => entry.id));
  const isWhole = !next.querySelector("a.earlier"); // it has the first entry
  let inWindow = isWhole;
  for (const entry of known.values()) {
    inWindow ||= entry.id === wanted[shared].id;
    if (inWindow && !stay.has(entry.id)) entry.remove();
  }
  if (isWhole) conversation.querySelector("a.earlier")?.remove();
  let last = known.get(wanted[shared].id);
  for (const entry of wanted.slice(shared + 1)) {
    const there = known.get(entry.id);
    if (!there) last.after(entry);
    last = there ?? entry;
  }
}

function notify(text, act) {
  let note = document.getElementById("note");
  if (!note) {
    note = document.createElement("div");
    note.id = "note";
    note.className = "toast";
    note.setAttribute("role", "status");
    document.getElementById("main").append(note);
  }
  const button = document.createElement("button");
  button.textContent = act ? "Reload" : "Close";
  button.addEventListener("click", () => {
    note.remove();
    document.activeElement.blur();
    act?.();
  });
  note.replaceChildren(text + " ", button);
}

if (live && live.dataset.live) {
  const source = new EventSource(live.dataset.live);
  let waiting = false;
  source.addEventListener("changed", () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => {
      waiting = false;
      refresh();
    }, 50);
  });
  addEventListener("pagehide", () => source.close());
}

// --- scrolling up loads earlier entries --------------------------------------------------------------------------

const watcher = new IntersectionObserver((seen) => {
  for (const one of seen) if (one.isIntersecting) loadEarlier(one.target);
});

function watchEarlier() {
  for (const marker of document.querySelectorAll("a.earlier")) watcher.observe(marker);
}

async function loadEarlier(marker) {
  watcher.unobserve(marker);
  const answer = await fetch(marker.dataset.more, { redirect: "error" });
  if (!answer.ok) {
    marker.textContent = "the earlier entries could not be loaded; try again";
    return;
  }
  const conversation = marker.parentElement;
  // On a narrow screen the page scrolls, not the conversation in it.
  const scroller = conversation.scrollHeight > conversation.clientHeight ? conversation : document.scrollingElement;
  const height = scroller.scrollHeight;
  const part = document.createElement("template");
  part.innerHTML = await answer.text(); // from our own server, which escapes it
  marker.replaceWith(part.content);
  scroller.scrollTop += scroller.scrollHeight - height; // the visible entries stay where they are
  watchEarlier();
}

document.addEventListener("click", (event) => {
  const marker = event.target.closest("a.earlier");
  if (!marker) return;
  event.preventDefault();
  loadEarlier(marker);
});

const conversation = document.getElementById("conversation");
if (conversation) {
  if (location.hash) document.querySelector(location.hash)?.scrollIntoView();
  else conversation.scrollTop = conversation.scrollHeight;
}
watchEarlier();

// --- keys --------------------------------------------------------------------------------------------------------

const steps = () => [...document.querySelectorAll("tbody a, a.moment, .snapshots a")];

function move(by) {
  const all = steps();
  if (!all.length) return;
  const place = all.indexOf(document.activeElement);
  all[Math.min(Math.max(place + by, 0), all.length - 1)].focus();
}

const KEYS = {
  "/": () => (document.getElementById("find") ? document.getElementById("find").focus() : (location.href = root + "/search")),
  j: () => move(1),
  k: () => move(-1),
  g: () => (location.href = root + "/"),
  n: () => document.querySelector(".then a")?.click(),
  "?": () => notify("/ find · j k move · Enter open · g sessions · n back to now"),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  const act = KEYS[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});
