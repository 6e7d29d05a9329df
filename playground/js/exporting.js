"use strict";
// What leaves the page: a network as a PyTorch script, files, and the clipboard.
define("exporting", ["network"], ({ KINDS, layout }) => {
  const word = (x) => (x === Infinity ? "inf" : x === -Infinity ? "-inf" : String(x));
  const list = (values) => `[${Array.from(values, word).join(", ")}]`;
  const rows = (values, width, indent) => {
    const lines = [];
    for (let i = 0; i < values.length; i += width) lines.push(list(values.slice(i, i + width)));
    return `[\n${lines.map((line) => `${indent}    ${line},`).join("\n")}\n${indent}]`;
  };

  /** A script that makes this network with lpunits, in double precision, and an optimiser to go on with. */
  function pytorch({ shape, theta, optimiser, rate, orderRate, orders }) {
    const { kind, units, filters, classes, learned } = shape;
    const places = layout(shape);
    const outputs = places.outputs;
    const part = (from, to) => theta.slice(from, to);
    const learns = kind === "lp" && learned.some((yes, j) => yes && orders[j] !== Infinity);
    const fixed = learns ? learned.map(Number) : [];
    const options = [`activation="${kind}"`];
    if (KINDS[kind].pools) options.push(`filters=${filters}`);
    if (KINDS[kind].norm) options.push("bias=False");
    if (kind === "lp") options.push(`order=${list(orders)}`, `learn_order=${learns ? "True" : "False"}`);
    const weight = part(places.weight, places.shift);
    const shift = part(places.shift, places.out);
    const lines = [
      `# ${units} ${KINDS[kind].label} ${units === 1 ? "unit" : "units"} of the lpunits playground`,
      "import torch",
      ...(orders.includes(Infinity) ? ["from math import inf", ""] : [""]),
      "import lpunits",
      "",
      "torch.set_default_dtype(torch.float64)",
      `net = lpunits.MLP(2, [${units}], ${outputs}, ${options.join(", ")})`,
      "with torch.no_grad():",
    ];
    if (KINDS[kind].pools) {
      const shifted = KINDS[kind].norm ? "center" : "bias";
      lines.push(
          `    net[0].weight.copy_(torch.tensor(${rows(weight, 2, "    ")}).view(${filters}, ${units}, 2))`,
        `    net[0].${shifted}.copy_(torch.tensor(${rows(shift, units, "    ")}))`,
      );
    } else
      lines.push(
        `    net[0].weight.copy_(torch.tensor(${rows(weight, 2, "    ")}))`,
        `    net[0].bias.copy_(torch.tensor(${list(shift)}))`,
      );
    lines.push(
      `    net[-1].weight.copy_(torch.tensor(${rows(part(places.out, places.bias), units, "    ")}))`,
      `    net[-1].bias.copy_(torch.tensor(${list(part(places.bias, places.size))}))`,
      "",
    );
    if (fixed.includes(0)) {
      lines.push("# Some orders stay as they are.");
      lines.push(`net[0].rho.register_hook(lambda grad: grad * torch.tensor(${list(fixed)}))`);
    }
    const groups = `lpunits.param_groups(net, lr=${rate}, order_scale=${orderRate})`;
    const loss = outputs === 1 ? "logistic" : "softmax";
    lines.push(
      {
        natural: `optimizer = lpunits.optim.NaturalConjugateGradient(net, loss="${loss}")`,
        adam: `optimizer = torch.optim.Adam(${groups})`,
        sgd: `optimizer = torch.optim.SGD(${groups}, momentum=0.9)`,
      }[optimiser],
      "",
      outputs === 1 ? "# The log-odds of the second class:" : "# The scores of the classes:",
      "print(net(torch.tensor([[0.0, 0.0], [0.5, -0.25], [1.0, 1.0]])))",
      "",
    );
    return lines.join("\n");
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Pages from disk may have no clipboard.
      const area = document.createElement("textarea");
      area.value = text;
      area.setAttribute("aria-hidden", "true");
      area.style.cssText = "position:fixed;opacity:0";
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }

  function save(name, text, type) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  return { pytorch, copy, save };
});
