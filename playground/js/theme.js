"use strict";
// The colours of the pictures, from the style sheet: both themes live in one place.
define("theme", [], () => {
  let known = null;
  const listeners = [];
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => {
    known = null;
    listeners.forEach((tell) => tell());
  });

  function colors() {
    if (!known) {
      const style = getComputedStyle(document.documentElement);
      const get = (name) => style.getPropertyValue(`--${name}`).trim();
      known = {
        key: dark.matches ? "dark" : "light",
        ink: get("ink"),
        soft: get("soft"),
        faint: get("faint"),
        plane: get("plane"),
        accent: get("accent"),
        units: [1, 2, 3, 4, 5, 6].map((i) => get(`unit-${i}`)),
        classes: [1, 2, 3].map((i) => get(`class-${i}`)),
      };
    }
    return known;
  }

  /** The numbers of a colour #rrggbb. */
  const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

  return { colors, rgb, onChange: (tell) => listeners.push(tell) };
});
