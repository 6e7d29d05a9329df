"use strict";
// A picture as a list of shapes in pixels, which a canvas paints and "Save picture" writes as SVG: what is saved is
// what is seen.
define("scene", [], () => {
  const round = (x) => Math.round(x * 100) / 100;
  const escape = (text) =>
    String(text).replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]);

  class Scene {
    constructor(width, height) {
      Object.assign(this, { width, height, items: [] });
    }

    /** A line through flat coordinates: {color, width, dash, fill, opacity}. */
    line(points, style) {
      // Dashes far outside of the picture would cost most of the time of a frame.
      const lines = style.dash ? clipped(points, this.width, this.height) : [points];
      for (const line of lines)
        if (line.length > 3) this.items.push({ type: "line", points: line, ...style });
    }

    /** Marks at flat coordinates: {shape: "disc" | "cross" | "triangle" | "ring", radius, color, opacity, width}. */
    marks(points, style) {
      if (points.length) this.items.push({ type: "marks", points, ...style });
    }

    /** A canvas, stretched over the picture. */
    image(canvas) {
      this.items.push({ type: "image", canvas });
    }

    /** Text: {color, size, weight, align, halo}. */
    text(words, x, y, style) {
      this.items.push({ type: "text", words, x, y, ...style });
    }

    arrow(x, y, toX, toY, { color, width, head = 9, opacity = 1 }) {
      const length = Math.hypot(toX - x, toY - y);
      if (!(length > 0.5)) return;
      const size = Math.min(head, length);
      const [ux, uy] = [(toX - x) / length, (toY - y) / length];
      const [bx, by] = [toX - size * ux, toY - size * uy];
      this.line([x, y, bx, by], { color, width, opacity });
      const side = size * 0.45;
      const tip = [toX, toY, bx - side * uy, by + side * ux, bx + side * uy, by - side * ux, toX, toY];
      this.line(tip, { fill: color, opacity });
    }

    /** What `draw` adds, painted once into a bitmap that is kept in `cache` under `key`. */
    kept(cache, key, scale, draw) {
      if (cache.key !== key) {
        const inner = new Scene(this.width, this.height);
        draw(inner);
        const canvas = document.createElement("canvas");
        canvas.width = Math.ceil(this.width * scale);
        canvas.height = Math.ceil(this.height * scale);
        const context = canvas.getContext("2d");
        context.scale(scale, scale);
        inner.paint(context);
        Object.assign(cache, { key, canvas, inner });
      }
      this.items.push({ type: "kept", canvas: cache.canvas, inner: cache.inner });
    }

    paint(context) {
      for (const item of this.items) PAINT[item.type](context, item, this);
      context.globalAlpha = 1;
    }

    /** The elements of the picture as SVG, without the svg element around them. */
    elements() {
      return this.items.map((item) => WRITE[item.type](item, this)).join("\n");
    }
  }

  /** The parts of a line that are in the picture, segment by segment after Liang and Barsky. */
  function clipped(points, width, height) {
    const lines = [];
    let open = null;
    for (let i = 0; i + 3 < points.length; i += 2) {
      const [x, y, toX, toY] = points.slice(i, i + 4);
      const [dx, dy] = [toX - x, toY - y];
      let [enter, leave] = [0, 1];
      for (const [way, room] of [[-dx, x + 9], [dx, width + 9 - x], [-dy, y + 9], [dy, height + 9 - y]])
        if (way < 0) enter = Math.max(enter, room / way);
        else if (way > 0) leave = Math.min(leave, room / way);
        else if (room < 0) leave = -1;
      if (!(enter <= leave)) {
        open = null;
        continue;
      }
      if (!open || enter > 0) lines.push((open = [x + enter * dx, y + enter * dy]));
      open.push(x + leave * dx, y + leave * dy);
      if (leave < 1) open = null;
    }
    return lines;
  }

  function marksPath(path, { points, shape, radius }) {
    for (let i = 0; i < points.length; i += 2) {
      const [x, y] = [points[i], points[i + 1]];
      if (shape === "cross") {
        path.moveTo(x - radius, y - radius);
        path.lineTo(x + radius, y + radius);
        path.moveTo(x - radius, y + radius);
        path.lineTo(x + radius, y - radius);
      } else if (shape === "triangle") {
        path.moveTo(x, y - 1.25 * radius);
        path.lineTo(x + 1.1 * radius, y + 0.8 * radius);
        path.lineTo(x - 1.1 * radius, y + 0.8 * radius);
        path.closePath();
      } else {
        path.moveTo(x + radius, y);
        path.arc(x, y, radius, 0, 2 * Math.PI);
      }
    }
  }

  const hollow = (shape) => shape === "cross" || shape === "ring";

  /** The pixels of a grid are its corners: the outer ones lie half outside. */
  function overhang(canvas, width, height) {
    const [dx, dy] = [width / (canvas.width - 1), height / (canvas.height - 1)];
    return [-dx / 2, -dy / 2, width + dx, height + dy];
  }

  const PAINT = {
    line(context, { points, color, width = 1, dash = [], fill, opacity = 1, cap = "butt" }) {
      context.globalAlpha = opacity;
      context.beginPath();
      for (let i = 0; i < points.length; i += 2) context.lineTo(points[i], points[i + 1]);
      const end = points.length - 2;
      if (points[0] === points[end] && points[1] === points[end + 1]) context.closePath();
      if (fill) {
        context.fillStyle = fill;
        context.fill();
      }
      if (!color) return;
      context.strokeStyle = color;
      context.lineWidth = width;
      context.lineJoin = "round";
      context.lineCap = cap;
      context.setLineDash(dash);
      context.stroke();
      context.setLineDash([]);
      context.lineCap = "butt";
    },
    marks(context, item) {
      context.globalAlpha = item.opacity ?? 1;
      context.beginPath();
      marksPath(context, item);
      if (hollow(item.shape)) {
        context.strokeStyle = item.color;
        context.lineWidth = item.width ?? 1.2;
        context.stroke();
      } else {
        context.fillStyle = item.color;
        context.fill();
      }
    },
    image(context, { canvas }, { width, height }) {
      context.globalAlpha = 1;
      context.imageSmoothingQuality = "high";
      context.drawImage(canvas, ...overhang(canvas, width, height));
    },
    text(context, { words, x, y, color, size = 13, weight = 600, align = "center", halo }) {
      context.globalAlpha = 1;
      context.font = `${weight} ${size}px system-ui, sans-serif`;
      context.textAlign = align;
      context.textBaseline = "middle";
      if (halo) {
        context.strokeStyle = halo;
        context.lineWidth = 4;
        context.lineJoin = "round";
        context.strokeText(words, x, y);
      }
      context.fillStyle = color;
      context.fillText(words, x, y);
    },
    kept(context, { canvas }, { width, height }) {
      context.globalAlpha = 1;
      context.drawImage(canvas, 0, 0, width, height);
    },
  };

  const WRITE = {
    line({ points, color, width = 1, dash = [], fill, opacity = 1, cap = "butt" }) {
      let path = "";
      for (let i = 0; i < points.length; i += 2)
        path += `${i ? "L" : "M"}${round(points[i])} ${round(points[i + 1])}`;
      const end = points.length - 2;
      if (points[0] === points[end] && points[1] === points[end + 1]) path += "Z";
      const dashes = dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
      const stroke = color ? ` stroke="${color}" stroke-width="${width}" stroke-linejoin="round" stroke-linecap="${cap}"${dashes}` : "";
      return `<path d="${path}" fill="${fill ?? "none"}" opacity="${opacity}"${stroke}/>`;
    },
    marks(item) {
      let d = "";
      const r = round(item.radius);
      const path = {
        moveTo: (x, y) => (d += `M${round(x)} ${round(y)}`),
        lineTo: (x, y) => (d += `L${round(x)} ${round(y)}`),
        closePath: () => (d += "Z"),
        arc: () => (d += `a${r} ${r} 0 1 0 ${-2 * r} 0a${r} ${r} 0 1 0 ${2 * r} 0`),
      };
      marksPath(path, item);
      const drawn = hollow(item.shape)
        ? `fill="none" stroke="${item.color}" stroke-width="${item.width ?? 1.2}"`
        : `fill="${item.color}"`;
      return `<path d="${d}" ${drawn} opacity="${item.opacity ?? 1}"/>`;
    },
    image({ canvas }, { width, height }) {
      const [x, y, w, h] = overhang(canvas, width, height);
      const box = `x="${x}" y="${y}" width="${w}" height="${h}"`;
      return `<image ${box} preserveAspectRatio="none" href="${canvas.toDataURL()}"/>`;
    },
    text({ words, x, y, color, size = 13, weight = 600, align = "center", halo }) {
      const anchor = { center: "middle", left: "start", right: "end" }[align];
      const around = halo ? ` stroke="${halo}" stroke-width="4" paint-order="stroke" stroke-linejoin="round"` : "";
      const place = `x="${round(x)}" y="${round(y)}" text-anchor="${anchor}" dominant-baseline="central"`;
      const font = `font-family="system-ui, sans-serif" font-size="${size}" font-weight="${weight}"`;
      return `<text ${place} ${font} fill="${color}"${around}>${escape(words)}</text>`;
    },
    kept: ({ inner }) => inner.elements(),
  };

  /** Pictures side by side, each under its title, as one SVG file. */
  function svg(pictures, background) {
    const [gap, head] = [24, 30];
    const width = pictures.reduce((sum, { scene }) => sum + scene.width + gap, gap);
    const height = Math.max(...pictures.map(({ scene }) => scene.height)) + head + gap;
    let x = gap;
    const parts = pictures.map(({ scene, title, color }, i) => {
      const box = `width="${scene.width}" height="${scene.height}"`;
      const part = [
        `<g transform="translate(${x} ${head})">`,
        `<text x="0" y="-10" font-family="system-ui, sans-serif" font-size="14" font-weight="600" fill="${color}">${escape(title)}</text>`,
        `<clipPath id="picture${i}"><rect ${box} rx="8"/></clipPath>`,
        `<g clip-path="url(#picture${i})">`,
        scene.elements(),
        "</g></g>",
      ].join("\n");
      x += scene.width + gap;
      return part;
    });
    const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size}>\n<rect width="100%" height="100%" fill="${background}"/>\n${parts.join("\n")}\n</svg>\n`;
  }

  /** Show a scene on a canvas, at the resolution of the screen. */
  function show(scene, canvas) {
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(scene.width * scale), Math.round(scene.height * scale)];
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const context = canvas.getContext("2d");
    context.setTransform(width / scene.width, 0, 0, height / scene.height, 0, 0);
    context.clearRect(0, 0, scene.width, scene.height);
    scene.paint(context);
  }

  /** From coordinates of the plane to pixels and back. */
  function mapping([left, right, bottom, top], width, height) {
    const [sx, sy] = [width / (right - left), height / (top - bottom)];
    return {
      x: (x) => (x - left) * sx,
      y: (y) => (top - y) * sy,
      line: (flat) => flat.map((value, i) => (i % 2 ? (top - value) * sy : (value - left) * sx)),
      back: (px, py) => [left + px / sx, top - py / sy],
    };
  }

  return { Scene, svg, show, mapping };
});
