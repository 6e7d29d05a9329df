"use strict";
// The page: which view is shown, the address, and what is copied or saved.
(() => {
  const { read, write } = use("state");
  const { svg } = use("scene");
  const { colors, onChange } = use("theme");
  const { copy, save } = use("exporting");
  const $ = (id) => document.getElementById(id);

  const state = read(location.hash);
  const fromLink = location.hash.length > 1;
  let written = location.hash.slice(1);

  // While a network trains, the address follows once a second: browsers refuse more.
  let waiting = 0;
  const writeSoon = () => {
    waiting ||= setTimeout(writeNow, 300);
  };
  function writeNow() {
    clearTimeout(waiting);
    waiting = 0;
    if (state.view !== "unit") networks.keepRuns();
    const address = write(state);
    if (address === written) return;
    written = address;
    history.replaceState(null, "", `#${address}`);
  }

  const one = use("unitView").mount(state, writeSoon);
  const networks = use("networkView").mount(state, writeSoon);

  function open(view, from = false) {
    one.stopSweep();
    networks.pause();
    state.view = view;
    $("unit").hidden = view !== "unit";
    $("network").hidden = view === "unit";
    document.body.dataset.view = view;
    document.querySelectorAll("nav button").forEach((button) => {
      if (button.dataset.view === view) button.setAttribute("aria-current", "page");
      else button.removeAttribute("aria-current");
    });
    $("copy-code").hidden = view === "unit";
    if (view === "unit") one.refresh();
    else networks.open(from);
  }

  document.querySelectorAll("[data-view]").forEach((button) => {
    if (button.tagName !== "BUTTON") return;
    button.addEventListener("click", () => {
      const { view } = button.dataset;
      if (view !== state.view) open(view, view !== "race"); // a race begins at the start, for both
      writeSoon();
      window.scrollTo({ top: 0 });
    });
  });
  window.addEventListener("hashchange", () => {
    if (location.hash.slice(1) === written) return;
    written = location.hash.slice(1);
    Object.assign(state, read(location.hash));
    open(state.view, true);
  });
  const redraw = () => (state.view === "unit" ? one.refresh() : networks.resize());
  window.addEventListener("resize", redraw);
  onChange(redraw);

  let fading = 0;
  function toast(text) {
    $("toast").textContent = text;
    $("toast").classList.add("shown");
    clearTimeout(fading);
    fading = setTimeout(() => $("toast").classList.remove("shown"), 1800);
  }
  $("copy-link").addEventListener("click", async () => {
    writeNow();
    await copy(location.href);
    toast("Link copied: it reopens this picture");
  });
  $("copy-code").addEventListener("click", async () => {
    await copy(networks.code());
    toast("Script copied: it runs with lpunits");
  });
  $("save-picture").addEventListener("click", () => {
    const pictures = state.view === "unit" ? one.pictures() : networks.pictures();
    save(`lpunits-${state.view}.svg`, svg(pictures, colors().plane), "image/svg+xml");
    toast("Picture saved as SVG");
  });

  open(state.view, true);
  // Whoever comes for the first time sees what p does, unless motion is not wanted.
  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (!fromLink && !still) {
    const stop = () => one.stopSweep();
    for (const event of ["pointerdown", "keydown", "wheel"]) window.addEventListener(event, stop, { once: true, capture: true });
    setTimeout(() => state.view === "unit" && one.sweep(9), 900);
  }
})();
