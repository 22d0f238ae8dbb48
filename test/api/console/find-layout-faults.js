// Runs in the page: its value is a sentence for each fault of what is shown.
(() => {
  const SLACK = 2;
  const faults = [];
  const nameOf = (node) => {
    const id = node.id === '' ? '' : `#${node.id}`;
    return `${node.tagName.toLowerCase()}${id}.${node.className?.baseVal ?? node.className} “${node.textContent.trim().slice(0, 30)}”`;
  };
  const isShown = (node) => {
    if (
      !node.checkVisibility({ visibilityProperty: true, opacityProperty: true })
    )
      return false;
    return node.closest('.hidden, .skip, .uplot, option') === null;
  };
  /** What can be scrolled inside something does not leave the screen, and is not cut. */
  const scroller = (node) => node.closest('.scroll, pre, nav');
  const shown = [...document.querySelectorAll('body *')].filter(isShown);
  const width = document.documentElement.clientWidth;

  if (document.documentElement.scrollWidth > width)
    faults.push('the page is wider than the screen');
  for (const node of shown) {
    if (scroller(node) !== null) continue;
    const { left, right } = node.getBoundingClientRect();
    if (left < -SLACK || right > width + SLACK)
      faults.push(`beside the screen: ${nameOf(node)}`);
  }

  /** The pieces of text, with the boxes of their lines. */
  const texts = [];
  for (const node of shown) {
    const pieces = [...node.childNodes].filter(
      (child) => child.nodeType === 3 && child.data.trim() !== '',
    );
    for (const piece of pieces) {
      const range = document.createRange();
      range.selectNodeContents(piece);
      for (const box of range.getClientRects())
        if (box.width > 1 && box.height > 1) texts.push({ node, box });
    }
  }
  const cutsOf = (node) => {
    const { overflowX } = getComputedStyle(node);
    return (
      (overflowX === 'hidden' || overflowX === 'clip') &&
      node.scrollWidth > node.clientWidth + SLACK
    );
  };
  for (const { node } of texts) {
    if (!node.matches('.cut, .cut *') && cutsOf(node))
      faults.push(`text is cut: ${nameOf(node)}`);
  }
  for (const [index, { node, box }] of texts.entries()) {
    for (const other of texts.slice(index + 1)) {
      if (other.node === node) continue;
      const across =
        Math.min(box.right, other.box.right) -
        Math.max(box.left, other.box.left);
      const down =
        Math.min(box.bottom, other.box.bottom) -
        Math.max(box.top, other.box.top);
      // The boxes of two lines of one paragraph touch.
      if (
        across > SLACK &&
        down > Math.min(box.height, other.box.height) / 2 &&
        scroller(node) === scroller(other.node)
      )
        faults.push(`text on text: ${nameOf(node)} and ${nameOf(other.node)}`);
    }
  }

  const controls = shown.filter((node) =>
    node.matches('button, a[href], input, select, textarea, summary'),
  );
  for (const [index, one] of controls.entries()) {
    const a = one.getBoundingClientRect();
    for (const other of controls.slice(index + 1)) {
      if (
        one.contains(other) ||
        other.contains(one) ||
        scroller(one) !== scroller(other)
      )
        continue;
      const b = other.getBoundingClientRect();
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > SLACK && down > SLACK)
        faults.push(
          `one control on another: ${nameOf(one)} and ${nameOf(other)}`,
        );
    }
  }
  return [...new Set(faults)].slice(0, 20);
})();
