// Runs a script with the page's modules under node: {folder, script, given} from stdin, what it returns to stdout.
// Numbers that JSON does not have are written as strings.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const odd = (_, value) => (["Infinity", "-Infinity", "NaN"].includes(value) ? Number(value) : value);
const plain = (_, value) =>
  ArrayBuffer.isView(value)
    ? Array.from(value)
    : typeof value === "bigint" || (typeof value === "number" && !Number.isFinite(value))
      ? String(value)
      : value;

const { folder, script, given } = JSON.parse(fs.readFileSync(0, "utf8"), odd);
const page = fs.readFileSync(path.join(folder, "index.html"), "utf8");
for (const [, name] of page.matchAll(/src="(js\/[^"]+)"/g)) {
  if (name.endsWith("main.js")) continue;
  vm.runInThisContext(fs.readFileSync(path.join(folder, name), "utf8"), { filename: name });
}
const result = vm.runInThisContext(`(given) => { ${script} }`)(given);
process.stdout.write(JSON.stringify(result, plain) ?? "null");
