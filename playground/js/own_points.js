"use strict";
// Points of the visitor's own: drawn in the plane by pointer or keyboard, or pasted as CSV.
define("ownPoints", ["data", "scene"], ({ parseCsv, MOST }, { mapping }) => {
  const APART = 9; // pixels between points of one stroke

  /** `host` has rows(), setRows(rows), extent() and active(). */
  function mount(host) {
    const $ = (id) => document.getElementById(id);
    const brush = () => Number(document.querySelector("input[name=brush]:checked").value);
    const say = (text) => ($("data-problem").textContent = text);

    function put(plane, px, py) {
      if (host.rows().length >= MOST) return say(`${MOST} points are the most that are shown.`);
      const [x, y] = mapping(host.extent(), plane.clientWidth, plane.clientHeight).back(px, py);
      host.setRows([...host.rows(), [Math.fround(x), Math.fround(y), brush()]]);
      return say("");
    }

    /** Let points be drawn in a plane. */
    function attach(plane) {
      let last = null;
      const place = (event) => {
        const box = plane.getBoundingClientRect();
        return [event.clientX - box.left, event.clientY - box.top];
      };
      plane.addEventListener("pointerdown", (event) => {
        if (!host.active()) return;
        event.preventDefault();
        plane.setPointerCapture(event.pointerId);
        last = place(event);
        put(plane, ...last);
      });
      plane.addEventListener("pointermove", (event) => {
        if (!last || !host.active()) return;
        const here = place(event);
        if (Math.hypot(here[0] - last[0], here[1] - last[1]) < APART) return;
        last = here;
        put(plane, ...last);
      });
      for (const end of ["pointerup", "pointercancel"]) plane.addEventListener(end, () => (last = null));

      // By keyboard: a cross that arrow keys move and Enter prints.
      const cursor = document.createElement("i");
      cursor.className = "cursor";
      plane.append(cursor);
      let at = [0.5, 0.5];
      const showCursor = () => {
        cursor.style.left = `${100 * at[0]}%`;
        cursor.style.top = `${100 * at[1]}%`;
      };
      showCursor();
      plane.addEventListener("keydown", (event) => {
        if (!host.active()) return;
        const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
        if (way) at = at.map((t, d) => Math.min(Math.max(t + 0.025 * way[d], 0.01), 0.99));
        else if (event.key === "Enter" || event.key === " ")
          put(plane, at[0] * plane.clientWidth, at[1] * plane.clientHeight);
        else return;
        event.preventDefault();
        showCursor();
      });
    }

    $("data-use").addEventListener("click", () => {
      try {
        host.setRows(parseCsv($("data-csv").value), true);
        say("");
      } catch (error) {
        say(error.message);
      }
    });
    $("data-clear").addEventListener("click", () => {
      host.setRows([], true);
      say("");
    });
    return { attach };
  }

  return { mount };
});
