"use strict";
// Formulas of the built pages as MathML, with no request to anywhere.

(() => {
  const LETTERS = {
    alpha: "α", beta: "β", gamma: "γ", delta: "δ", epsilon: "ε", lambda: "λ", kappa: "κ", pi: "π", sigma: "σ", tau: "τ", phi: "φ",
    infty: "∞", Delta: "Δ", hat: "^", bar: "¯",
  };
  const SIGNS = {
    cdot: "·", times: "×", le: "≤", ge: "≥", in: "∈", to: "→", gets: "←", approx: "≈", ne: "≠", sum: "∑", prod: "∏", ldots: "…", mid: "|", pm: "±",
  };
  const WORDS = ["max", "min", "log", "exp", "softmax", "arg"];
  const escape = (text) => text.replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);

  // TeX of the few kinds that these pages use: fractions, roots, indices, Greek letters, signs, single words.
  function mathml(tex) {
    const parts = tex.match(/\\[a-zA-Z]+|\\.|[0-9][0-9.,]*|[a-zA-Zα-ω]|\S/g) || [];
    let at = 0;
    const row = (end) => {
      let found = "";
      while (at < parts.length && parts[at] !== end) found += scripts(single());
      at += 1;
      return `<mrow>${found}</mrow>`;
    };
    const single = () => {
      const part = parts[at++];
      if (part === "{") return row("}");
      if (part === "\\frac") return `<mfrac>${single()}${single()}</mfrac>`;
      if (part === "\\left" || part === "\\right") return `<mo stretchy="true">${escape(parts[at++])}</mo>`;
      if (part === "\\sqrt") return `<msqrt>${single()}</msqrt>`;
      if (part === "\\hat" || part === "\\bar") return `<mover accent="true">${single()}<mo>${LETTERS[part.slice(1)]}</mo></mover>`;
      if (part === "\\text") {
        const first = ++at;
        while (parts[at] !== "}") at += 1;
        return `<mtext>${escape(parts.slice(first, at++).join(""))}</mtext>`;
      }
      const name = part.slice(1);
      if (part[0] === "\\" && WORDS.includes(name)) return `<mi>${name}</mi><mspace width=".17em"/>`;
      if (part[0] === "\\" && LETTERS[name]) return `<mi>${LETTERS[name]}</mi>`;
      if (part[0] === "\\") return SIGNS[name] ? `<mo>${SIGNS[name]}</mo>` : `<mspace width=".3em"/>`;
      if (/[0-9]/.test(part)) return `<mn>${part}</mn>`;
      return /[a-zA-Zα-ω]/.test(part) ? `<mi>${part}</mi>` : `<mo>${escape(part === "-" ? "−" : part)}</mo>`;
    };
    const scripts = (base) => {
      const found = {};
      while (parts[at] === "_" || parts[at] === "^") found[parts[at++]] = single();
      if (found._ && found["^"]) return `<msubsup>${base}${found._}${found["^"]}</msubsup>`;
      if (found._) return `<msub>${base}${found._}</msub>`;
      return found["^"] ? `<msup>${base}${found["^"]}</msup>` : base;
    };
    return row();
  }

  for (const one of document.querySelectorAll(".arithmatex")) {
    const [, open, tex] = /^\s*\\([([])([\s\S]*)\\[)\]]\s*$/.exec(one.textContent) || [];
    if (tex) one.innerHTML = `<math display="${open === "[" ? "block" : "inline"}">${mathml(tex)}</math>`;
  }
})();
