"use strict";
// A page that is opened from disk may load neither ES modules nor a worker's script. So modules are
// functions with named needs, in classic scripts, and a worker is made from the text of those it needs.
(function modules(scope) {
  const known = new Map();
  const made = new Map();

  /** A module: its name, the names of what it needs, and the function that makes it of those. */
  scope.define = (name, needs, factory) => {
    known.set(name, { needs, factory });
  };

  /** The module of a name, made when it is first used. */
  scope.use = (name) => {
    if (!made.has(name)) {
      const { needs, factory } = known.get(name);
      made.set(name, factory(...needs.map(scope.use)));
    }
    return made.get(name);
  };

  /** A script that defines a module with all that it needs, and runs it. */
  scope.scriptOf = (name) => {
    const parts = new Map();
    const add = (each) => {
      if (parts.has(each)) return;
      const { needs, factory } = known.get(each);
      needs.forEach(add);
      parts.set(each, `define(${JSON.stringify(each)}, ${JSON.stringify(needs)}, ${factory});`);
    };
    add(name);
    return [
      '"use strict";',
      `(${modules})(globalThis);`,
      ...parts.values(),
      `use(${JSON.stringify(name)});`,
    ].join("\n");
  };
})(globalThis);
